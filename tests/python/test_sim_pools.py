"""Stock PyTorch with `backend:cudaMallocAsync`: the driver's pools on the simulated GPU."""

from typing import Any

from harness import MIB, run

ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


def on_pools(code: str, **settings: Any) -> Any:
    done = run(code, enable=False, environment=ASYNC, **settings)
    assert "simulated CUDA:" not in done.stderr, done.stderr
    return done.value


def test_memory_goes_back_to_the_device_when_the_cache_is_emptied() -> None:
    held, cached, emptied = on_pools("""
        first = torch.zeros(1, device="cuda")
        free = torch.cuda.mem_get_info()[0]
        def used():
            return [free - torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated(),
                    torch.cuda.memory_reserved()]
        x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        held = used()
        del x
        torch.cuda.synchronize()
        cached = used()
        torch.cuda.empty_cache()
        report([held, cached, used()])
    """)
    assert held[0] >= 224 * MIB, "less what the first chunk had left"
    assert held[1] >= 256 * MIB
    assert held[2] >= 256 * MIB
    assert cached[0] == held[0], "PyTorch sets a release threshold above everything"
    assert cached[1] < MIB
    assert emptied[0] == 0
    assert emptied[2] <= 32 * MIB


def test_values_survive_streams_that_hand_memory_over() -> None:
    assert on_pools(
        """
        side = torch.cuda.Stream()
        expected = torch.arange(1 << 16)
        x = expected.cuda()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x.clone()
            x.record_stream(side)
        del x
        z = torch.empty(1 << 16, dtype=torch.int64, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        report(bool(torch.equal(y.cpu(), expected)) and z.data_ptr() != y.data_ptr())
        """,
        sim={"lag": "5ms"},
    )


def test_a_captured_graph_has_memory_of_its_own() -> None:
    value = on_pools("""
        x = torch.ones((8 << 20) - 1024, device="cuda")
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1).relu()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        taken = before - torch.cuda.mem_get_info()[0]
        shape = list(y.shape)
        del y, graph
        torch.cuda.synchronize()
        report({"shape": shape, "taken": taken, "left": before - torch.cuda.mem_get_info()[0]})
    """)
    assert value["shape"] == [(8 << 20) - 1024]
    assert value["taken"] == 64 * MIB, "y lies where the product was, beside the sum"
    assert value["left"] == 0


def test_a_device_too_small_raises_out_of_memory_and_goes_on() -> None:
    assert on_pools(
        """
        kept = []
        try:
            while True:
                kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            count = len(kept)
        del kept
        again = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        report([count, torch.cuda.memory_allocated() >> 20])
        """,
        sim={"memory": "4GiB"},
    ) == [6, 512]
