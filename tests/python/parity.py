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


def both(code: str, *, conf: str = SEGMENTS, sim: Mapping[str, Any] | None = None) -> list[Any]:
    """What `code` reports under PyTorch's own allocator, and under Offcut."""
    text = WALK + textwrap.dedent(code)

    def one(enable: bool) -> Any:
        return run(
            text, enable=enable, sim=sim, environment={"PYTORCH_CUDA_ALLOC_CONF": conf}
        ).value

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, (False, True)))
