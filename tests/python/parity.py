"""The same program under PyTorch's own allocator and under Offcut, side by side."""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness import run

if TYPE_CHECKING:
    from collections.abc import Mapping

SEGMENTS = "expandable_segments:False"

# walk(seed, steps) does what a program may do with memory, at random but for the seed, and yields
# the number of each step. Streams, sizes from 1 B to 200 MiB, small and large ones mixed.
WALK = """
import random

def walk(seed, steps, side_streams=2):
    rng = random.Random(seed)
    torch.cuda.init()
    streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(side_streams)]
    live = []

    def size():
        return rng.choice((
            lambda: rng.randrange(1, 4096),
            lambda: rng.randrange(1, 1 << 20),
            lambda: rng.randrange(1 << 20, 10 << 20),
            lambda: rng.randrange(10 << 20, 200 << 20),
        ))()

    def allocate():
        with torch.cuda.stream(rng.choice(streams)):
            live.append(torch.empty(size(), dtype=torch.uint8, device="cuda"))

    def free():
        for _ in range(min(len(live), rng.randrange(1, 4))):
            live.pop(rng.randrange(len(live)))

    def record_stream():
        if live:
            rng.choice(live).record_stream(rng.choice(streams))

    actions = {
        allocate: 500,
        free: 400,
        record_stream: 40,
        torch.cuda.empty_cache: 10,
        torch.cuda.synchronize: 10,
        torch.cuda.reset_peak_memory_stats: 5,
        torch.cuda.reset_accumulated_memory_stats: 5,
    }
    for step in range(steps):
        try:
            rng.choices(list(actions), actions.values())[0]()
        except torch.OutOfMemoryError:
            free()
        yield step
"""


# told(snapshot): what a snapshot says that does not differ from run to run, or by rule. A free
# block has no request; natively it still shows the one that it served last.
TOLD = """
def told(snapshot):
    streams = {}

    def without(entry, *keys):
        entry = {key: value for key, value in entry.items() if key not in keys}
        if "stream" in entry:
            entry["stream"] = streams.setdefault(entry["stream"], len(streams))
        return entry

    def block(entry):
        return without(entry, *(("requested_size",) if entry["state"] == "inactive" else ()))

    return {
        **snapshot,
        "device_traces": [[without(entry, "time_us") for entry in trace]
                          for trace in snapshot["device_traces"]],
        "external_annotations": [without(entry, "time_us")
                                 for entry in snapshot["external_annotations"]],
        "segments": [{**without(segment), "blocks": [block(b) for b in segment["blocks"]]}
                     for segment in snapshot["segments"]],
    }
"""


def first_difference(native: Any, ours: Any, path: str = "") -> str | None:
    """Where two reported values differ first.

    A segment's stack is ours alone where it is missing natively: PyTorch keeps it with the block
    that the segment was first, and loses sight of it once that is cut.
    """
    if isinstance(native, dict) and isinstance(ours, dict):
        if "total_size" in native or native.get("action") == "segment_free":
            native = {**native, "frames": native.get("frames") or ours.get("frames")}
            ours = {**ours, "frames": ours.get("frames")}
        if native.keys() != ours.keys():
            return f"{path}: {native} natively, {ours} here"
        pairs = [(f"{path}/{key}", native[key], ours[key]) for key in native]
    elif isinstance(native, list) and isinstance(ours, list):
        pairs = [
            (f"{path}[{i}]", *values) for i, values in enumerate(zip(native, ours, strict=False))
        ]
        pairs.append((f"{path}: length", len(native), len(ours)))
    else:
        return None if native == ours else f"{path}: {native!r} natively, {ours!r} here"
    return next((found for pair in pairs if (found := first_difference(*pair[1:], pair[0]))), None)


def both(
    code: str,
    *,
    conf: str = SEGMENTS,
    sim: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """What `code` reports under PyTorch's own allocator, and under Offcut."""
    text = WALK + TOLD + textwrap.dedent(code)

    def one(enable: bool) -> Any:
        # The line that enables Offcut is missing natively, and stacks name lines.
        code_of_one = text if enable else "\n" + text
        settings = {**(environment or {}), "PYTORCH_CUDA_ALLOC_CONF": conf}
        return run(code_of_one, enable=enable, sim=sim, environment=settings).value

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, (False, True)))
