"""What is not built yet says so, by the name that its users know; nothing is silently ignored."""

import pytest
from harness import run

REFUSED = {
    "snapshot": ("torch.cuda.memory._snapshot()", "memory_snapshot"),
    "memory_snapshot": ("torch.cuda.memory_snapshot()", "memory_snapshot"),
    "history": ("torch.cuda.memory._record_memory_history()", "_record_memory_history"),
    "graph": (
        "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    y = x + 1",
        "CUDA graphs",
    ),
    "mempool": ("torch.cuda.MemPool()", "MemPool"),
    "ipc": ("x.untyped_storage()._share_cuda_()", "CUDA IPC"),
    "no cache": ("torch.cuda.caching_allocator_enable(False)", "caching_allocator_enable"),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_names_the_feature_and_the_program_goes_on(feature: str) -> None:
    statement, name = REFUSED[feature]
    done = run(f"""
        x = torch.empty(1000, device="cuda")
        try:
            exec({statement!r})
            report("nothing was raised")
        except NotImplementedError as error:
            report(str(error))
        y = torch.empty(1000, device="cuda")
    """)
    assert "Offcut does not support" in done.value
    assert name in done.value


def test_switching_history_off_is_fine() -> None:
    assert (
        run("""
        torch.cuda.memory._record_memory_history(enabled=None)
        report("fine")
    """).value
        == "fine"
    )


def test_an_allocation_on_a_capturing_stream_names_the_private_pools() -> None:
    # PyTorch's own graphs are refused before they begin; a capture begun by somebody else is not.
    done = run("""
        import ctypes
        x = torch.empty(1000, device="cuda")
        cuda = ctypes.CDLL("libcuda.so.1")
        stream = torch.cuda.Stream()
        assert cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.cuda_stream), 2) == 0
        with torch.cuda.stream(stream):
            try:
                torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
                report("nothing was raised")
            except RuntimeError as error:
                report(str(error))
    """)
    assert "capture of a CUDA graph" in done.value
    assert "private pools" in done.value
