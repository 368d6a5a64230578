"""In the segments layout, torch.cuda.memory_stats is native's, number for number."""

from __future__ import annotations

import pytest
from parity import SEGMENTS, both

CONFIGURATIONS = {
    "default": (SEGMENTS, {"memory": "16GiB"}),
    "little memory": (SEGMENTS, {"memory": "2GiB"}),
    "oversize": (f"{SEGMENTS},max_split_size_mb:40", {"memory": "2GiB"}),
    "garbage": (
        f"{SEGMENTS},garbage_collection_threshold:0.5,per_process_memory_fraction:0.5",
        {"memory": "2GiB"},
    ),
    "divisions": (
        f"{SEGMENTS},roundup_power2_divisions:[256:4,1024:2,>:1],large_segment_size_mb:40,"
        "max_split_size_mb:64,max_non_split_rounding_mb:50",
        {"memory": "3GiB"},
    ),
}

# Where several streams finish at once, native takes their blocks in the order of a hash table: what
# was free, and cut, in between may differ, and the sums of it.
IN_BETWEEN = ("allocated", "freed", "peak")

PROGRAM = """
seen = []
for step in walk(seed={seed}, steps=2000):
    if step % 7 == 0:
        seen.append(torch.cuda.memory_stats())
report([seen, torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True)])
"""


def differences(native: list[dict[str, int]], ours: list[dict[str, int]]) -> list[str]:
    assert len(native) == len(ours)
    return [
        f"{key} at sample {i}: {theirs[key]} natively, {mine[key]} here"
        for i, (theirs, mine) in enumerate(zip(native, ours, strict=True))
        for key in theirs
        if theirs[key] != mine.get(key)
    ]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_figure_is_natives_at_every_step(name: str, seed: int) -> None:
    conf, sim = CONFIGURATIONS[name]
    (native, *native_summaries), (ours, *summaries) = both(
        PROGRAM.format(seed=seed), conf=conf, sim=sim
    )
    assert differences(native, ours) == []
    assert summaries == native_summaries
    assert max(s["inactive_split.all.current"] for s in native) > 0, "the program cuts blocks"
    if name == "oversize":
        assert max(stats["oversize_allocations.current"] for stats in native) > 0
    if "little" in name:
        assert max(stats["num_alloc_retries"] for stats in native) > 0


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_while_the_device_runs_far_behind(name: str) -> None:
    """Only waits bring it forward, so that both allocators see the same events done."""
    conf, sim = CONFIGURATIONS[name]
    (native, *_), (ours, *_) = both(
        PROGRAM.format(seed=3), conf=conf, sim={**sim, "lag": "3600000ms"}
    )
    told = [
        text
        for text in differences(native, ours)
        if not (text.startswith("inactive_split") and text.split()[0].endswith(IN_BETWEEN))
    ]
    assert told == []
    pending = max(s["active.all.current"] - s["allocation.all.current"] for s in native)
    assert pending > 0, "frees wait for streams"
