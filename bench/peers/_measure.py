"""One process of allocator_pairs.py: PyTorch's own allocator and Offcut side by side.

The environment has chosen the backend of PyTorch's own. Writes what was found as JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KIB = 1 << 10
MIB = 1 << 20

# As pairs_open of allocator_pairs.cc numbers them.
DOORS = ("own", "own_with_stream", "offcut", "offcut_shim")

# What is compared: PyTorch calls the shim as it calls its own allocator; the C interface is given
# device and stream, as raw_alloc_with_stream is given the stream.
RATIOS = (
    ("offcut", "own"),
    ("offcut", "own_with_stream"),
    ("offcut_shim", "own"),
)


@dataclass(frozen=True)
class Case:
    """A pair is an allocation and a free; see Spec of allocator_pairs.cc."""

    name: str
    max_bytes: int
    min_bytes: int = 512
    live: int = 0
    threads: int = 1
    replace: bool = False
    native_only: bool = False  # too long, or too large, to repeat for each peer


CASES = (
    *(Case(f"pair_{size >> 10}_KiB", size) for size in (4 * KIB, 1 * MIB)),
    *(Case(f"pair_{size >> 20}_MiB", size) for size in (2 * MIB, 64 * MIB, 512 * MIB)),
    Case("random_1000_live", 64 * MIB, live=1000, replace=True),
    # Up to 16 MiB: all that is held at once must fit into a card twice.
    Case("random_10000_live", 16 * MIB, live=10_000, replace=True),
    *(Case(f"threads_{n}", 4 * KIB, threads=n) for n in (2, 4, 8)),
    # 512 B to 64 KiB: from slots of slabs and from the index of free blocks.
    *(
        Case(f"{what}_{live}_live", 64 * KIB, live=live, replace=replace, native_only=True)
        for what, replace in (("lifo", False), ("replace", True))
        for live in (1000, 1_000_000)
    ),
)

# A run is long against the clock and short against the ring of a recording, which holds 262,144
# events: what is dropped costs less than what is recorded.
RUN_NS = 5e6
PAIRS_MAX = 100_000
# What a workload with live blocks runs before anything is measured. Sizes and victims repeat after
# 65,536 pairs; by then an allocator that only grows runs in the memory that it has. Offcut moves
# memory before it grows, for at most 1 % of the time, and settles later: after some seconds.
WARM_UP_PAIRS = 64 * 65_536
COUNTED_PAIRS = 10_000


class Spec(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64) for name in ("live", "min_bytes", "max_bytes", "threads", "replace")
    ]


class CallCounts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64) for name in ("heap_allocations", "driver_calls", "system_calls")
    ]


class Pairs:
    """liballocator_pairs.so."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.pairs_error.restype = ctypes.c_char_p
        self.library.pairs_own_name.restype = ctypes.c_char_p
        self.library.pairs_open.restype = ctypes.c_void_p
        self.library.pairs_run.restype = ctypes.c_double
        self.library.pairs_remember_own()

    def check(self, succeeded: bool) -> None:
        if not succeeded:
            raise RuntimeError(self.library.pairs_error().decode())

    def start_own(self, history: bool) -> str:
        self.check(self.library.pairs_start_own(int(history)) == 0)
        name: str = self.library.pairs_own_name().decode()
        return name

    def open(self, door: str, case: Case) -> int:
        spec = Spec(case.live, case.min_bytes, case.max_bytes, case.threads, int(case.replace))
        workload: int | None = self.library.pairs_open(DOORS.index(door), ctypes.byref(spec))
        self.check(workload is not None)
        assert workload is not None
        return workload

    def close(self, workload: int) -> None:
        self.library.pairs_close(ctypes.c_void_p(workload))

    def run(self, workload: int, case: Case, pairs: int) -> float:
        """Nanoseconds per pair."""
        ns: float = self.library.pairs_run(
            ctypes.c_void_p(workload), ctypes.c_uint64(case.threads), ctypes.c_uint64(pairs)
        )
        self.check(ns >= 0)
        return ns

    def check_counter(self) -> None:
        self.check(self.library.pairs_check_counter() == 0)

    def count(self, workload: int, pairs: int) -> CallCounts:
        counts = CallCounts()
        counted = self.library.pairs_count(
            ctypes.c_void_p(workload), ctypes.c_uint64(pairs), ctypes.byref(counts)
        )
        self.check(counted == 0)
        return counts


def groups(case: Case) -> tuple[tuple[str, ...], ...]:
    """The doors that are open at the same time, and whose runs take turns.

    Two doors of one allocator would each hold its live blocks, and make it hold twice as many.
    """
    if not case.live:
        return (DOORS,)
    return (("own", "offcut"),) if case.native_only else (("own", "offcut"), ("own", "offcut_shim"))


def pairs_per_run(pairs: Pairs, workload: int, case: Case) -> int:
    pairs.run(workload, case, 200)
    ns = pairs.run(workload, case, 200)
    wanted = int(RUN_NS * case.threads / ns)  # threads begin some microseconds apart
    return max(200, min(wanted, PAIRS_MAX // case.threads))


def take_turns(
    pairs: Pairs, case: Case, doors: tuple[str, ...], rounds: int
) -> dict[str, list[float]]:
    """Nanoseconds per pair of each door and round; a round lets each door run once."""
    ns: dict[str, list[float]] = {door: [] for door in doors}
    workloads = {door: pairs.open(door, case) for door in doors}
    if case.live:
        for workload in workloads.values():
            pairs.run(workload, case, WARM_UP_PAIRS)
    lengths = {door: pairs_per_run(pairs, workloads[door], case) for door in doors}
    for number in range(rounds):
        first = number % len(doors)  # nobody always comes after the same other
        for door in doors[first:] + doors[:first]:
            ns[door].append(pairs.run(workloads[door], case, lengths[door]))
    for workload in workloads.values():
        pairs.close(workload)
    return ns


def measure(pairs: Pairs, case: Case, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"ns_per_pair": {}, "ratios": {}, "rounds": {}}
    for doors in groups(case):
        ns = take_turns(pairs, case, doors, rounds)
        for door, taken in ns.items():
            found["ns_per_pair"].setdefault(door, statistics.median(taken))
            found["rounds"].setdefault(door, [round(one, 1) for one in taken])
        for one, other in RATIOS:
            if one in ns and other in ns:
                ratio = statistics.median(a / b for a, b in zip(ns[one], ns[other], strict=True))
                found["ratios"][f"{one}/{other}"] = ratio
    return found


def count(pairs: Pairs, case: Case) -> dict[str, Any]:
    """What each door asks of the host and the driver, per pair, once its workload runs steadily."""
    counted: dict[str, Any] = {}
    for door in DOORS:
        workload = pairs.open(door, case)
        pairs.run(workload, case, WARM_UP_PAIRS)
        counts = pairs.count(workload, COUNTED_PAIRS)
        pairs.close(workload)
        known = {
            "heap_allocations": True,
            # PyTorch does not look CUDA's functions up by name: its calls are not seen.
            "driver_calls": door.startswith("offcut"),
            "system_calls": counts.system_calls >= 0,
        }
        counted[door] = {
            kind: getattr(counts, kind) / COUNTED_PAIRS if seen else None
            for kind, seen in known.items()
        }
    return counted


def measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    import offcut  # noqa: PLC0415
    import torch  # noqa: PLC0415 - it takes seconds

    pairs = Pairs(arguments.library)  # before Offcut takes PyTorch's place
    offcut.enable()
    torch.cuda.init()
    own_allocator = pairs.start_own(arguments.history)
    if arguments.count:
        pairs.check_counter()
    cases = {}
    for case in CASES:
        if case.name in arguments.cases:
            print(f"   {case.name}", file=sys.stderr, flush=True)
            cases[case.name] = (
                count(pairs, case) if arguments.count else measure(pairs, case, arguments.rounds)
            )
    return {
        "own_allocator": own_allocator,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "recording": offcut.recording_directory(),
        "cases": cases,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--cases", nargs="+", required=True)
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--count", action="store_true")
    arguments = parser.parse_args()

    try:
        found = measure_all(arguments)
    except (
        RuntimeError
    ) as error:  # PyTorch's too: its first line says it, the others name addresses
        found = {"error": str(error).split("\n", 1)[0]}
    arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
