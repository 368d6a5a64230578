"""Memory history and those who are told of memory, beside native's for the same program."""

from __future__ import annotations

from typing import Any

import pytest
from harness import BUILD, run
from parity import both, first_difference

# Each part of `out` is compared on its own.
SWITCHING = """
import torch.autograd.profiler as profiler
torch.cuda.init()
memory = torch.cuda.memory

def one(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")

def snapshot():
    return told(memory._snapshot())

def outcome(call):
    try:
        return call()
    except Exception as error:
        return [type(error).__name__, str(error).splitlines()[0]]

out = {}
early = one(1000)
out["before"] = [snapshot(), torch._C._cuda_isHistoryEnabled()]
out["unknown action"] = outcome(lambda: memory._record_memory_history(skip_actions=["nonsense"]))
memory._record_memory_history(stacks="python", skip_actions=["free_requested"],
                              global_record_annotations=True)
memory._set_memory_metadata("mine")
a, b = one(5000), one(3 << 20)
out["metadata"] = memory._get_memory_metadata()
memory._set_memory_metadata("")
with profiler.record_function("region"):
    c = one(100)
    del b
del early
out["skipped and annotated"] = snapshot()
torch.cuda.empty_cache()
out["enabled"] = torch._C._cuda_isHistoryEnabled()
memory._record_memory_history(stacks="python", clear_history=True)
d = one(77)
out["cleared"] = snapshot()
del a, c, d
memory._record_memory_history(None)
out["off"] = [snapshot(), torch._C._cuda_isHistoryEnabled()]
memory._record_memory_history(stacks="python", context="alloc")
e = one(9 << 20)
del e
out["out of memory"] = [outcome(lambda: one(3 << 30))[0], snapshot()]
torch.cuda.empty_cache()
memory._record_memory_history(None)
memory._record_memory_history("state", stacks="python")
f = one(10)
out["state"] = snapshot()
report(out)
"""


@pytest.fixture(scope="module")
def switching() -> list[dict[str, Any]]:
    return both(SWITCHING, sim={"memory": "2GiB"})


@pytest.mark.parametrize(
    "part",
    [
        "before", "unknown action", "metadata", "skipped and annotated", "enabled", "cleared",
        "off", "out of memory", "state",
    ],
)  # fmt: skip
def test_history_is_natives(switching: list[dict[str, Any]], part: str) -> None:
    native, ours = switching
    assert first_difference(native[part], ours[part]) is None


def test_the_program_did_what_the_parts_are_called_for(switching: list[dict[str, Any]]) -> None:
    native, _ = switching
    assert native["unknown action"] == ["RuntimeError", "Unknown TraceEntry action: nonsense"]
    annotated = native["skipped and annotated"]
    assert [a["stage"] for a in annotated["external_annotations"]] == ["START", "END"]
    trace = annotated["device_traces"][0]
    assert "mine" in {entry["user_metadata"] for entry in trace}
    assert "free_requested" not in {entry["action"] for entry in trace}
    failed = native["out of memory"]
    assert failed[0] == "OutOfMemoryError"
    entries = [entry for entry in failed[1]["device_traces"][0] if entry["action"] == "oom"]
    assert entries[0]["device_free"] > 0


def test_a_smaller_ring_keeps_the_last_entries() -> None:
    """Natively it keeps the older ones, and writes new ones over them."""
    code = """
    torch.cuda.init()
    record = torch.cuda.memory._record_memory_history
    record(context=None)
    for size in (1, 2, 3):
        torch.empty(size, dtype=torch.uint8, device="cuda")
    record(context=None, max_entries=4)
    torch.empty(4, dtype=torch.uint8, device="cuda")
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    report([(entry["action"], entry["size"]) for entry in trace])
    """
    assert run(code).value == [
        ["free_completed", 3],
        ["alloc", 4],
        ["free_requested", 4],
        ["free_completed", 4],
    ]


def test_stacks_of_all_languages() -> None:
    code = """
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="all")
    kept = torch.empty(1000, device="cuda")
    entry = torch.cuda.memory._snapshot()["device_traces"][0][-1]
    names = [frame["name"] for frame in entry["frames"]]
    report([entry["action"], "<module>" in names, any("empty" in name for name in names)])
    """
    native, ours = both(code)
    assert native == ours == ["alloc", True, True]


def test_autograd_threads_and_many_threads_are_recorded() -> None:
    """Gathering a stack takes Python's lock, and must not do so below the allocator's."""
    done = run("""
        import threading
        torch.cuda.init()
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=500)
        weight = torch.randn(64, 64, device="cuda", requires_grad=True)

        def work():
            for _ in range(30):
                (torch.randn(16, 64, device="cuda") @ weight).sum().backward()
                torch.empty(1 << 20, device="cuda")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            torch.cuda.memory._snapshot()
        for thread in threads:
            thread.join()
        report(len(torch.cuda.memory._snapshot()["device_traces"][0]))
    """)
    assert done.value == 500


OBSERVERS = """
from torch.profiler import profile, ProfilerActivity
import torch.cuda._gpu_trace as gpu_trace
torch.cuda.init()
calls = []
first = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: calls.append(list(figures)))
try:
    torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
    kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (10, 2 << 20, 700)]
    del kept[1]
events = [
    [event.name(), event.nbytes(), event.device_index()]
    for event in profiled.profiler.kineto_results.events()
    if "[memory]" in event.name() and str(event.device_type()) == "DeviceType.CUDA"
]
report([calls, events, sum(event.device_memory_usage for event in profiled.key_averages())])
"""


def test_the_profiler_and_out_of_memory_observers_are_told() -> None:
    native, ours = both(OBSERVERS, sim={"memory": "2GiB"})
    assert native == ours
    assert len(native[0]) == 1


def test_gpu_trace_callbacks_are_called() -> None:
    code = """
    import torch.cuda._gpu_trace as gpu_trace
    seen = []
    torch._C._activate_gpu_trace()
    gpu_trace.register_callback_for_memory_allocation(lambda p: seen.append(["alloc", p]))
    gpu_trace.register_callback_for_memory_deallocation(lambda p: seen.append(["free", p]))
    a = torch.empty(1000, device="cuda")
    b = torch.empty(1 << 20, device="cuda")
    del a
    names = {}
    report([[what, names.setdefault(p, len(names))] for what, p in seen])
    """
    native, ours = both(code)
    assert native == ours == [["alloc", 0], ["alloc", 1], ["free", 0]]


def test_trackers_see_every_entry() -> None:
    code = f"""
    import ctypes
    tracker = ctypes.CDLL({str(BUILD / "tests/python/libtrace_tracker.so")!r})
    tracker.tracked_lines.restype = ctypes.c_char_p
    torch.cuda.init()
    kept = torch.empty(100, device="cuda")
    tracker.attach_tracker()
    for step in walk(seed=4, steps=150):
        if step == 100:
            torch.cuda.memory._record_memory_history(stacks="python", max_entries=2)
        if step == 120:
            torch.cuda.memory._record_memory_history(None)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = torch.empty(100, device="cuda")
    report(tracker.tracked_lines().decode().splitlines())
    """
    native, ours = both(code, sim={"memory": "2GiB"})
    assert native == ours
    assert any(line.endswith("context") for line in native)
    assert any(line.endswith("none") for line in native)
