"""Snapshots: native's, number for number, in the segments layout; sound ones of arenas."""

from __future__ import annotations

from typing import Any

import pytest
from harness import run
from parity import SEGMENTS, WALK, both, first_difference

HISTORIES = {
    "all": "stacks='python'",
    "state": "'state', stacks='python'",
    "the last entries": "context='alloc', stacks='python', max_entries=50",
    "live blocks' stacks": "context='state', stacks='python'",
    "no stacks": "context=None",
}

PROGRAM = """
torch.cuda.init()
torch.cuda.memory._record_memory_history({history})
seen = []
for step in walk(seed={seed}, steps=400):
    if step % 80 == 79:
        seen.append(told(torch.cuda.memory._snapshot()))
report(seen)
"""


@pytest.mark.parametrize("name", HISTORIES)
def test_segments_blocks_and_traces_are_natives(name: str) -> None:
    native, ours = both(PROGRAM.format(history=HISTORIES[name], seed=1), sim={"memory": "1GiB"})
    assert first_difference(native, ours) is None
    assert max(len(snapshot["segments"]) for snapshot in native) > 3
    if name == "all":
        actions = {entry["action"] for entry in native[-1]["device_traces"][0]}
        assert actions >= {
            "alloc",
            "free_requested",
            "free_completed",
            "segment_alloc",
            "segment_free",
            "snapshot",
            "oom",
        }


def test_blocks_that_streams_still_use_are_natives() -> None:
    """The device is brought forward by waits alone, so that both see the same events done."""
    native, ours = both(
        PROGRAM.format(history="stacks='python'", seed=2),
        sim={"memory": "4GiB", "lag": "3600000ms"},
    )
    # Where several streams have finished, native takes their blocks in a hash table's order.
    for snapshots in (native, ours):
        for snapshot in snapshots:
            for trace in snapshot["device_traces"]:
                in_order(trace)
    assert first_difference(native, ours) is None
    states = {b["state"] for s in native for segment in s["segments"] for b in segment["blocks"]}
    assert states == {"active_allocated", "active_pending_free", "inactive"}


def in_order(trace: list[dict[str, Any]]) -> None:
    """Sorts each run of frees that were completed one after the other."""
    begin = 0
    while begin < len(trace):
        end = begin
        while end < len(trace) and trace[end]["action"] == "free_completed":
            end += 1
        trace[begin:end] = sorted(trace[begin:end], key=lambda entry: int(entry["addr"]))
        begin = max(end, begin + 1)


POOLS = """
torch.cuda.init()
torch.cuda.memory._record_memory_history(stacks='python')
pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
def one(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")
with torch.cuda.use_mem_pool(pool):
    kept = [one(1000), one(3 << 20)]
    one(500)
with torch.cuda.use_mem_pool(other):
    more = one(100)
default = one(7 << 20)
unknown = torch.cuda.memory.memory_snapshot((0, 1 << 40))
def sizes(segments):
    return [[s["total_size"], s["segment_type"], s["segment_pool_id"] == (0, 0),
             [(b["size"], b["state"]) for b in s["blocks"]]] for s in segments]
report([
    sizes(pool.snapshot()), sizes(torch.cuda.memory_snapshot(pool.id)),
    sizes(other.snapshot()), unknown, sizes(torch.cuda.memory_snapshot()),
    torch.cuda.memory._snapshot()["device_traces"] != [[]],
    torch._C._cuda_memorySnapshot((0, 0, False))["device_traces"],
    len(torch._C._cuda_memorySnapshot((*pool.id, True))["segments"]),
])
"""


def test_private_pools_have_snapshots_of_their_own() -> None:
    native, ours = both(POOLS)
    assert native == ours
    assert native[0] == native[1]
    assert len(native[0]) == 2
    assert native[3] == []


def test_there_is_a_trace_for_each_device() -> None:
    code = """
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks='python')
    kept = [torch.empty(1000 * (i + 1), device=f"cuda:{i}") for i in (1, 0, 1)]
    report(told(torch.cuda.memory._snapshot()))
    """
    native, ours = both(code, sim={"devices": 2})
    assert first_difference(native, ours) is None
    assert [len(trace) for trace in native["device_traces"]] == [2, 3]


# What PyTorch's own tools make of a snapshot, in either layout.
TOOLS = """
import io, pickle, tempfile, contextlib
from torch.cuda import _memory_viz as viz
torch.cuda.init()
torch.cuda.memory._record_memory_history(stacks='python')
steps = walk(seed=5, steps=400)
for step in steps:
    if step == 200:
        before = torch.cuda.memory._snapshot()
    if step == 399:
        break
with tempfile.NamedTemporaryFile() as file:
    torch.cuda.memory._dump_snapshot(file.name)
    after = pickle.load(open(file.name, "rb"))
stats = torch.cuda.memory_stats()
segments = after["segments"]
sums = {
    key: sum(s[key] for s in segments)
    for key in ("total_size", "allocated_size", "active_size", "requested_size")
}
plain = lambda text, **_: text
outputs = {
    "segsum": viz.segsum(after),
    "trace": viz.trace(after),
    "compare": viz.compare(before["segments"], segments, format_flamegraph=plain),
    "memory": viz.memory(after, format_flamegraph=plain),
    "trace_plot": viz.trace_plot(after),
    "segment_plot": viz.segment_plot(after),
}
report({
    "sums": sums,
    "stats": stats,
    "holes": [s["address"] for s in segments
              if sum(b["size"] for b in s["blocks"]) != s["total_size"]],
    "overlaps": [b["address"] for a, b in zip(segments, segments[1:])
                 if a["address"] + a["total_size"] > b["address"]],
    "unframed": sum(not b["frames"] for s in segments for b in s["blocks"]
                    if b["state"] != "inactive"),
    "expandable": sorted({s["is_expandable"] for s in segments}),
    "lengths": {name: len(text) for name, text in outputs.items()},
    "traced_live": sum({"alloc": 1, "free_completed": -1}.get(e["action"], 0)
                       for e in after["device_traces"][0]),
    "traced_memory": sum({"segment_map": 1, "segment_alloc": 1, "segment_unmap": -1,
                          "segment_free": -1}.get(e["action"], 0) * e["size"]
                         for e in after["device_traces"][0]),
})
"""


@pytest.mark.parametrize("conf", [SEGMENTS, "expandable_segments:True"])
def test_pytorchs_own_tools_read_it(conf: str) -> None:
    told = run(
        WALK + TOOLS, sim={"memory": "8GiB"}, environment={"PYTORCH_CUDA_ALLOC_CONF": conf}
    ).value
    stats = told["stats"]
    assert told["sums"] == {
        "total_size": stats["reserved_bytes.all.current"],
        "allocated_size": stats["allocated_bytes.all.current"],
        "active_size": stats["active_bytes.all.current"],
        "requested_size": stats["requested_bytes.all.current"],
    }
    assert told["holes"] == []
    assert told["overlaps"] == []
    assert told["unframed"] == 0
    assert told["expandable"] == [conf != SEGMENTS]
    assert told["traced_live"] == stats["active.all.current"]
    assert told["traced_memory"] == stats["reserved_bytes.all.current"]
    assert all(length > 100 for length in told["lengths"].values()), told["lengths"]
