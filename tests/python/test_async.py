"""Offcut's async layout (`backend:cudaMallocAsync`) under real PyTorch, beside PyTorch's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness import MIB, inspect, offcut_program, run
from test_sim_training import TRAINING

if TYPE_CHECKING:
    from pathlib import Path

ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
# By which the driver's pools grow.
CHUNK = 32 * MIB


def on_async(code: str, *, environment: dict[str, str] | None = None, **how: Any) -> Any:
    return run(code, environment={**ASYNC, **(environment or {})}, **how).value


def test_training_takes_what_it_takes_with_pytorchs_own() -> None:
    environment = {"ATTENTION": "flash", "DTYPE": "bfloat16"}
    code = TRAINING.replace(
        "torch.cuda.memory_allocated()",
        'torch.cuda.memory_stats().get("requested_bytes.all.current", 0)'
        " or torch.cuda.memory_allocated()",
    )
    stock = on_async(code, enable=False, environment=environment)
    ours = on_async(code, environment=environment)
    assert ours["allocated"] == stock["allocated"], "PyTorch's own counts what was requested"
    assert ours["reserved"] == stock["reserved"]
    assert ours["reserved"] % CHUNK == 0


def test_the_backend_is_named_as_pytorch_demands() -> None:
    assert (
        on_async("""
        torch.zeros(1, device="cuda")
        torch.empty(1).pin_memory()  # makes PyTorch read its settings again
        report(torch.cuda.get_allocator_backend())
    """)
        == "cudaMallocAsync"
    )
    # Asked for in OFFCUT_CONF alone, PyTorch does not know of it.
    done = run(
        """
        torch.zeros(1, device="cuda")
        torch.empty(1).pin_memory()
        report([torch.cuda.get_allocator_backend(), torch.cuda.memory_reserved()])
        """,
        environment={"OFFCUT_CONF": "backend:cudaMallocAsync"},
    )
    assert done.value == ["native", CHUNK]


def test_emptying_the_cache_gives_memory_back() -> None:
    held, cached, emptied = on_async("""
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
    assert held[1] == 256 * MIB + 512
    assert held[2] == held[0] + CHUNK == 9 * CHUNK
    assert cached == [held[0], 512, held[2]], "nothing goes back by itself"
    assert emptied == [0, 512, CHUNK]


def test_values_survive_streams_that_hand_memory_over() -> None:
    assert on_async(
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


def test_a_captured_graph_has_memory_of_its_own_and_leaves_none() -> None:
    value = on_async("""
        x = torch.ones((8 << 20) - 1024, device="cuda")
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1).relu()
        allocated = torch.cuda.memory_allocated()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        taken = before - torch.cuda.mem_get_info()[0]
        del y
        freed = torch.cuda.memory_allocated()
        graph.replay()
        del graph
        torch.cuda.synchronize()
        report({"allocated": allocated - freed, "taken": taken,
                "left": before - torch.cuda.mem_get_info()[0]})
    """)
    assert value["allocated"] == CHUNK - 4096
    assert value["taken"] == 2 * CHUNK, "y lies where the product was, beside the sum"
    assert value["left"] == 0, "also what the last launch allocated, and nobody held any more"


def test_a_captured_graph_may_free_on_streams_that_it_has_joined() -> None:
    # PyTorch's own frees where the tensor was made, after the join: its capture fails.
    assert on_async("""
        x = torch.ones(1 << 20, device="cuda")
        outside = torch.ones(1 << 20, device="cuda")
        side = torch.cuda.Stream()
        before = torch.cuda.mem_get_info()[0]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            z = x + 1
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                w = z * 2
                v = w + 1
                z.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            del w, z, outside
        for _ in range(3):
            graph.replay()
        del v, graph
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        report([torch.cuda.memory_allocated(), before - torch.cuda.mem_get_info()[0]])
    """) == [4 * MIB, 0]


def test_a_pool_has_memory_of_its_own_that_goes_with_it() -> None:
    alone, held, kept, gone = on_async("""
        x = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        alone = torch.cuda.memory_reserved()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            y = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        held = torch.cuda.memory_reserved()
        del y
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved()
        del pool
        report([alone, held, kept, torch.cuda.memory_reserved()])
    """)
    assert alone == 2 * CHUNK
    assert held == kept == 4 * CHUNK, "a graph may use what was freed in a pool"
    assert gone == alone


def test_a_device_too_small_raises_out_of_memory_and_goes_on() -> None:
    count, text, allocated = on_async(
        """
        kept = []
        try:
            while True:
                kept.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError as error:
            count, text = len(kept), str(error)
        del kept
        again = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        report([count, text, torch.cuda.memory_allocated() >> 20])
        """,
        sim={"memory": "4GiB"},
    )
    assert count == 6
    assert "CUDA out of memory. Tried to allocate 512.00 MiB." in text
    assert "live             3.00 GiB" in text
    assert allocated == 512


def test_the_memory_fraction_holds() -> None:
    limit, reserved, served = on_async("""
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(0.01)
        kept, served = [], 0
        try:
            for _ in range(1000):
                kept.append(torch.empty(40 << 20, dtype=torch.uint8, device="cuda"))
                served += 1
        except torch.cuda.OutOfMemoryError:
            pass
        report([int(total * 0.01), torch.cuda.max_memory_reserved(), served])
    """)
    assert reserved <= limit
    assert served * 40 * MIB > limit - 2 * CHUNK


def test_a_recording_of_it_is_sound(tmp_path: Path) -> None:
    run(
        """
        pool = torch.cuda.MemPool()
        for step in range(3):
            offcut.step()
            x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
            with torch.cuda.use_mem_pool(pool):
                y = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                z = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
            graph.replay()
            del x, y, z, graph
            torch.cuda.empty_cache()
        """,
        environment={**ASYNC, "OFFCUT_RECORD": str(tmp_path)},
    )
    (recording,) = tmp_path.iterdir()
    offcut_program("check", recording)
    assert inspect(recording)["peak_reserved_bytes"] >= 100 * MIB


def test_the_library_agrees_with_itself_throughout() -> None:
    allocated, reserved = on_async("""
        import ctypes
        library = ctypes.CDLL(os.path.join(os.path.dirname(offcut.__file__), "lib",
                                           "liboffcut.so"))
        library.offcut_last_error.restype = ctypes.c_char_p
        def check():
            assert library.offcut_audit() == 0, library.offcut_last_error()
        pools = [torch.cuda.MemPool(no_split=i % 2 == 0) for i in range(3)]
        kept = []
        for i in range(60):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept.append(torch.empty((1 + i) << 18, dtype=torch.uint8, device="cuda"))
                check()
            with torch.cuda.use_mem_pool(pools[i % 3]):
                kept.append(torch.empty((1 + i) << 17, dtype=torch.uint8, device="cuda"))
            check()
            graph.replay()
            if i % 3 == 0:
                del kept[: len(kept) // 2]
            if i % 10 == 0:
                torch.cuda.empty_cache()
            del graph
            check()
        kept.clear()
        pools.clear()
        torch.cuda.empty_cache()
        check()
        report([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
    """)
    assert allocated == 0
    assert reserved == 0
