"""CUDA graphs and MemPools of real PyTorch: what they do under native, they do under Offcut."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from harness import LIBRARY, MIB, inspect, offcut_program, run

if TYPE_CHECKING:
    from pathlib import Path


def both(code: str, **how: Any) -> tuple[Any, Any]:
    """What a program reports under native and under Offcut."""
    return run(code, enable=False, **how).value, run(code, **how).value


SAME = {
    "a graph is captured and launched": """
        x = torch.ones(1000, 1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = (x @ x).relu()
            z = y + 1
            del y
            w = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        graph.replay()
        report([torch.cuda.memory_allocated(), list(graph.pool()), list(z.shape), w.numel()])
    """,
    "graphs share a pool": """
        pool = torch.cuda.graph_pool_handle()
        graphs, kept = [torch.cuda.CUDAGraph() for _ in range(3)], []
        for graph in graphs:
            with torch.cuda.graph(graph, pool=pool):
                kept.append(torch.empty(5 << 20, dtype=torch.uint8, device="cuda"))
                scratch = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
                del scratch
        report([torch.cuda.memory_allocated(), len({k.data_ptr() for k in kept}),
                [graph.pool() == pool for graph in graphs]])
    """,
    "warm-up on a side stream, then a whole training step as a graph": """
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(),
                                    torch.nn.Linear(2048, 512)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(256, 512, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                model(x).square().mean().backward()
                optimizer.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        report([torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()])
    """,
    "memory of a graph outlives its tensors and goes with the graph": """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        held = torch.cuda.memory_reserved()
        del x
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved() >= 50 << 20
        graph.reset()
        torch.cuda.empty_cache()
        report([kept, torch.cuda.memory_reserved() <= held - (50 << 20),
                torch.cuda.memory_allocated()])
    """,
    "a pool counts its uses": """
        pool = torch.cuda.MemPool()
        counts = [pool.use_count()]
        with torch.cuda.use_mem_pool(pool):
            counts.append(pool.use_count())
            x = torch.empty(1000, device="cuda")
        counts.append(pool.use_count())
        report(counts + [list(pool.id)])
    """,
    "a pool keeps its memory to itself": """
        outside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        cached = outside.data_ptr()
        del outside
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        at = inside.data_ptr()
        del inside
        outside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        report([at != cached, outside.data_ptr() == cached, inside.data_ptr() == at])
    """,
    "pools nest": """
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(outer):
            a = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
            at = a.data_ptr()
            del a
            with torch.cuda.use_mem_pool(inner):
                b = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
            c = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        report([b.data_ptr() != at, c.data_ptr() == at])
    """,
    "the same pool twice is an error": """
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            try:
                with torch.cuda.use_mem_pool(pool):
                    pass
                report("nothing was raised")
            except RuntimeError as error:
                report("already recording to mempool_id" in str(error))
    """,
    "ending what was never begun is an error": """
        x = torch.empty(1, device="cuda")
        try:
            torch._C._cuda_endAllocateToPool(0, (0, 77))
            report("nothing was raised")
        except RuntimeError as error:
            report("not currently recording to mempool_id" in str(error))
    """,
    "only the thread that uses the pool allocates from it": """
        import threading
        pool = torch.cuda.MemPool()
        warm = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        cached = warm.data_ptr()
        del warm
        got = []
        def other():
            x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
            got.append(x.data_ptr() == cached)
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        report(got + [inside.data_ptr() != cached])
    """,
    "the memory of a pool goes with it": """
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        held = torch.cuda.memory_reserved()
        del x
        torch.cuda.empty_cache()
        kept = torch.cuda.memory_reserved() == held
        del pool
        report([kept, held - torch.cuda.memory_reserved() >= 50 << 20])
    """,
    "a tensor may outlive its pool": """
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
        del pool
        torch.cuda.empty_cache()
        alive = torch.cuda.memory_allocated()
        del x
        torch.cuda.empty_cache()
        report([alive, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
    """,
    "free blocks of a pool serve others where that is allowed and memory is out": """
        total = torch.cuda.get_device_properties(0).total_memory
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        at = x.data_ptr()
        del x
        y = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        report(y.data_ptr() == at)
    """,
    "else they do not": """
        total = torch.cuda.get_device_properties(0).total_memory
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        del x
        try:
            torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
            report("it fitted")
        except torch.cuda.OutOfMemoryError as error:
            report(str(error).split(".")[0])
    """,
    "memory out within a capture fails it, and the next works": """
        total = torch.cuda.get_device_properties(0).total_memory
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                torch.empty(int(total * 2), dtype=torch.uint8, device="cuda")
            outcome = "nothing was raised"
        except torch.cuda.OutOfMemoryError:
            outcome = "out of memory"
        again = torch.cuda.CUDAGraph()
        with torch.cuda.graph(again):
            x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        again.replay()
        report(outcome)
    """,
    "a block used on several captured streams": """
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        with torch.cuda.graph(graph):
            x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
            at = x.data_ptr()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x + 1
            x.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            del x
            z = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        after = torch.empty(1000, device="cuda")
        report([z.data_ptr() != at, torch.cuda.memory_allocated()])
    """,
}


@pytest.mark.parametrize("what", SAME)
def test_as_native(what: str) -> None:
    native, ours = both(SAME[what])
    assert ours == native


# An allocator of a MemPool's own, as PyTorch's documentation makes them: of ctypes closures
# instead of a compiled library, over cudaMalloc.
OWN_ALLOCATOR = """
import ctypes
cudart = ctypes.CDLL(None)
asked, freed, behave = [], [], []
@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def own_malloc(size, device, stream):
    asked.append(size)
    if behave == ["null"]:
        return None
    address = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def own_free(address, size, device, stream):
    freed.append(size)
    assert cudart.cudaFree(ctypes.c_void_p(address)) == 0
own = torch._C._cuda_customAllocator(
    ctypes.cast(own_malloc, ctypes.c_void_p).value, ctypes.cast(own_free, ctypes.c_void_p).value)
def figures():
    stats = torch.cuda.memory_stats()
    return [stats[f"{name}.all.{which}"] for name in ("allocated_bytes", "reserved_bytes")
            for which in ("current", "peak")]
"""

OWN = {
    "segments come from the allocator, are cut and cached, and go back to it": """
        pool = torch.cuda.MemPool(own)
        with torch.cuda.use_mem_pool(pool):
            small = torch.empty(1000, device="cuda")
            large = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
            at = large.data_ptr()
            del large
            again = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
            huge = torch.empty((30 << 20) + 1, dtype=torch.uint8, device="cuda")
        report([list(asked), list(freed), again.data_ptr() == at, figures()])
        del small, again, huge
        torch.cuda.empty_cache()
        report([list(freed), figures()])
        del pool
        torch.cuda.empty_cache()
        report([sorted(freed), figures()])
    """,
    "a tensor outlives the pool and its allocator": """
        pool = torch.cuda.MemPool(own)
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(30 << 20, dtype=torch.uint8, device="cuda")
        del pool, own
        torch.cuda.empty_cache()
        report([list(freed), int(x.numel())])
        del x
        torch.cuda.empty_cache()
        report([list(freed), figures()])
    """,
    "no memory there is PyTorch's out-of-memory error, after a second try": """
        pool = torch.cuda.MemPool(own)
        behave.append("null")
        with torch.cuda.use_mem_pool(pool):
            try:
                torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
                report("nothing was raised")
            except torch.cuda.OutOfMemoryError as error:
                report(str(error).split(". GPU")[0])
            behave.clear()
            x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        report(x.numel())
    """,
    "a graph is captured into it": """
        graph = torch.cuda.CUDAGraph()
        pool = torch.cuda.MemPool(own)
        with torch.cuda.graph(graph, pool=pool.id):
            x = torch.ones(30 << 20, dtype=torch.uint8, device="cuda")
            y = x + 1
        graph.replay()
        torch.cuda.synchronize()
        report([list(asked), figures()])
    """,
    "what is not split": """
        pool = torch.cuda.MemPool(own, no_split=True)
        with torch.cuda.use_mem_pool(pool):
            kept = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
        report([list(asked), figures()])
    """,
    "free blocks serve others where that is allowed and memory is out": """
        pool = torch.cuda.MemPool(own, use_on_oom=True)
        total = torch.cuda.get_device_properties(0).total_memory
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        at = x.data_ptr()
        del x
        y = torch.empty(int(total * 0.6), dtype=torch.uint8, device="cuda")
        report(y.data_ptr() == at)
    """,
    "the memory fraction holds for both together": """
        torch.cuda.set_per_process_memory_fraction(0.5)
        total = torch.cuda.get_device_properties(0).total_memory
        pool = torch.cuda.MemPool(own)
        outcomes = []
        def attempt(fraction):
            try:
                size = int(total * fraction)
                outcomes.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.cuda.OutOfMemoryError:
                outcomes.append(None)
        with torch.cuda.use_mem_pool(pool):
            attempt(0.3)
            attempt(0.3)
        attempt(0.3)
        attempt(0.1)
        report([outcome is not None for outcome in outcomes] + [len(asked)])
    """,
    "a block used on another stream waits for it": """
        pool = torch.cuda.MemPool(own)
        side = torch.cuda.Stream()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        x.record_stream(side)
        del x
        torch.cuda.synchronize()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        report(torch.cuda.memory_allocated())
    """,
}


@pytest.mark.parametrize("what", OWN)
def test_memory_of_somebody_elses_as_native(what: str) -> None:
    code = OWN_ALLOCATOR + textwrap.dedent(OWN[what])
    native, ours = run(code, enable=False).reports, run(code).reports
    assert ours == native


def test_what_the_allocator_of_a_pool_throws_is_what_the_program_gets() -> None:
    # Native's own allocator throws for a device that is used in a way that it cannot be.
    done = run("""
        pool = torch.cuda.MemPool(torch._C._cuda_customAllocator(0, 0))
        try:
            with torch.cuda.use_mem_pool(pool):
                torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
            report("nothing was raised")
        except RuntimeError as error:
            report(str(error))
        report(torch.empty(30 << 20, dtype=torch.uint8, device="cuda").numel())
    """)
    message, after = done.reports
    assert "bad_function_call" in message
    assert after == 30 << 20


def test_the_pool_of_pytorchs_documentation_with_offcut_as_its_allocator() -> None:
    done = run(
        f"""
        plugged = torch.cuda.memory.CUDAPluggableAllocator(
            {str(LIBRARY)!r}, "offcut_malloc", "offcut_free")
        pool = torch.cuda.MemPool(plugged.allocator())
        with torch.cuda.use_mem_pool(pool):
            inside = torch.arange(1 << 20).to("cuda")
            more = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        outside = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        sum = offcut.accounting()
        report([torch.cuda.memory_allocated(), sum["live_bytes"], sum["foreign_bytes"],
                bool((inside.cpu() == torch.arange(1 << 20)).all())])
        del inside, more, pool
        torch.cuda.empty_cache()
        sum = offcut.accounting()
        report([sum["live_bytes"], sum["reserved_bytes"], offcut.counters()["invalid_frees"]])
        """
    )
    before, after = done.reports
    assert before == [42 << 20, 42 << 20, 0, True]
    assert after == [4 << 20, 4 << 20, 0]


def test_a_recording_tells_of_memory_of_somebody_elses(tmp_path: Path) -> None:
    run(
        OWN_ALLOCATOR
        + textwrap.dedent("""
        outside = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        pool = torch.cuda.MemPool(own)
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
        more = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
        del inside, pool
        torch.cuda.empty_cache()
        report(len(freed))
        """),
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    offcut_program("check", tmp_path)
    seen = inspect(tmp_path)
    assert seen["accounting"]["foreign_bytes"] == 30 * MIB
    assert seen["accounting"]["live_bytes"] == 8 * MIB
    assert seen["devices"][0]["live_over_reserved"] <= 1
    assert seen["devices"][0]["events_by_kind"]["ForeignSegmentRemoved"] == 1


def test_a_filter_that_throws_fails_the_request_with_its_own_error() -> None:
    # Of a captured stream that was made invalid, CUDA does not tell the id, and PyTorch throws.
    done = run("""
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(1000, device="cuda")
        try:
            with torch.cuda.graph(graph):
                x.sum().item()
            report("nothing was raised")
        except Exception as error:
            report(type(error).__name__)
        y = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    """)
    assert done.value != "nothing was raised"


def test_the_library_agrees_with_itself_throughout() -> None:
    done = run("""
        import ctypes
        library = ctypes.CDLL(str(offcut.library_path())) if hasattr(offcut, "library_path") else \\
            ctypes.CDLL(os.path.join(os.path.dirname(offcut.__file__), "lib", "liboffcut.so"))
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
    assert done.value[0] == 0
    assert done.value[1] <= 2 * MIB
