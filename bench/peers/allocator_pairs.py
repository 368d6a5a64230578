"""What an allocation and its free cost: PyTorch's own allocator and Offcut in one process.

One process for each of PyTorch's allocators, since the environment decides among them. In each,
Offcut runs beside it, through its C interface and its shim, in turns; figures are medians over the
rounds, ratios the median of the rounds' ratios. A further process counts heap allocations, system
calls and driver calls. Without a GPU, all run on the simulated one. Writes everything as JSON, and
prints the bars.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _results import ROOT, gpus, output_of, provenance, results_folder, to_json

from _measure import CASES  # isort: skip - beside this file

BUILD = Path(os.environ.get("OFFCUT_TEST_BUILD_DIR", ROOT / "build" / "release"))


@dataclass(frozen=True)
class Process:
    """One of PyTorch's allocators, with Offcut beside it."""

    name: str
    conf: str = ""  # PYTORCH_CUDA_ALLOC_CONF
    history: bool = False
    record: bool = True
    count: bool = False


PROCESSES = (
    Process("native"),
    Process("native_offcut_not_recording", record=False),
    Process("native_with_history", history=True),
    Process("expandable_segments", conf="expandable_segments:True"),
    Process("cudaMallocAsync", conf="backend:cudaMallocAsync"),
    Process("calls", count=True),
)


def environment(process: Process, scratch: Path, simulated: bool) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OFFCUT_", "PYTORCH_", "LD_PRELOAD"))
    }
    preload = []
    if process.count:
        preload.append(str(BUILD / "bench" / "libcall_counter.so"))
    if simulated:
        import offcut  # noqa: PLC0415 - a GPU needs none of it here

        wanted = offcut.simulated_environment()
        kept["OFFCUT_SIM"] = wanted["OFFCUT_SIM"]
        preload.append(wanted["LD_PRELOAD"])
    if preload:
        kept["LD_PRELOAD"] = " ".join(preload)
    if process.record:
        kept["OFFCUT_RECORD"] = str(scratch / "recording")
    # Offcut reads PyTorch's options as its defaults; here they are the peer's alone.
    return {
        **kept,
        "PYTORCH_CUDA_ALLOC_CONF": process.conf,
        "OFFCUT_CONF": "backend:native,expandable_segments:True",
    }


def dropped_events(recording: Path) -> int | None:
    """Of events that the recording had no room for; None if nobody can tell."""
    text = output_of(
        BUILD / "package" / "offcut" / "bin" / "offcut", "inspect", "--json", recording
    )
    return json.loads(text)["dropped_events"] if text else None


def run(process: Process, cases: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """What the process found; {"error": ...} if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        out = scratch / "figures.json"
        flags = ["--history"] * process.history + ["--count"] * process.count
        done = subprocess.run(
            [
                *(sys.executable, Path(__file__).with_name("_measure.py"), *flags),
                *("--library", BUILD / "bench" / "liballocator_pairs.so", "--out", out),
                *("--rounds", str(arguments.rounds), "--cases", *cases),
            ],
            env=environment(process, scratch, arguments.simulated),
            stdout=sys.stderr,
            check=False,
        )
        if done.returncode != 0:
            return {"error": f"exit {done.returncode}"}
        figures: dict[str, Any] = json.loads(out.read_text())
        if recording := figures.pop("recording", ""):
            figures["dropped_events"] = dropped_events(Path(recording))
        return figures


def bars(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The promises, each with what was measured; "value" is None where it could not be."""
    native = runs.get("native", {}).get("cases", {})
    calls = runs.get("calls", {}).get("cases", {})

    def over_native(case: str) -> float | None:
        return native[case]["ratios"]["offcut/own"] if case in native else None

    def growth(case: str, door: str) -> float | None:
        few, many = f"{case}_1000_live", f"{case}_1000000_live"
        if few not in native or many not in native:
            return None
        return native[many]["ns_per_pair"][door] / native[few]["ns_per_pair"][door]

    def most_calls(kind: str) -> float | None:
        counted = [
            doors[door][kind]
            for doors in calls.values()
            for door in ("offcut", "offcut_shim")
            if doors[door][kind] is not None
        ]
        return max(counted, default=None)

    replace, own_replace = growth("replace", "offcut"), growth("replace", "own")
    listed = {
        "pair of 4 KiB, recording / native": (over_native("pair_4_KiB"), 0.25),
        "random sizes, 1,000 live, recording / native": (over_native("random_1000_live"), 0.25),
        "8 threads on one device, recording / native": (over_native("threads_8"), 0.10),
        "LIFO pair, 1,000,000 live / 1,000 live": (growth("lifo", "offcut"), 2.0),
        "random free and allocation, 1,000,000 live / 1,000 live, over native's": (
            replace / own_replace if replace and own_replace else None,
            1.0,
        ),
        "heap allocations per pair": (most_calls("heap_allocations"), 0.0),
        "driver calls per pair": (most_calls("driver_calls"), 0.0),
        "system calls per pair": (most_calls("system_calls"), 0.0),
    }
    return {
        name: {"value": value, "bar": bar, "met": value <= bar if value is not None else None}
        for name, (value, bar) in listed.items()
    }


def machine_name(simulated: bool) -> str:
    if simulated:
        return "simulated"
    name = gpus().split(",", 1)[0].removeprefix("NVIDIA ").lower()
    return re.sub(r"\W+", "_", name)


def table(runs: dict[str, dict[str, Any]]) -> str:
    doors = ("own", "own_with_stream", "offcut", "offcut_shim")
    ratios = ("offcut/own", "offcut_shim/own")
    width = max(len(title) for title in (*doors, *ratios)) + 2
    lines = [f"{'ns per pair':24}" + "".join(f"{title:>{width}}" for title in (*doors, *ratios))]
    for name, found in runs.items():
        lines.append(f"-- {name}" + (f": {found['error']}" if "error" in found else ""))
        for case, figures in found.get("cases", {}).items():
            if "ns_per_pair" not in figures:
                continue
            cells = [f"{figures['ns_per_pair'].get(door, float('nan')):.0f}" for door in doors]
            cells += [f"{figures['ratios'].get(ratio, float('nan')):.3f}" for ratio in ratios]
            lines.append(f"{case:24}" + "".join(f"{cell:>{width}}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--processes", nargs="+", choices=[p.name for p in PROCESSES], metavar="NAME",
        default=[p.name for p in PROCESSES],
    )  # fmt: skip
    parser.add_argument("--simulated", action="store_true", default=not gpus())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or (
        results_folder() / f"allocator_pairs_{machine_name(arguments.simulated)}.json"
    )

    runs = {}
    for process in PROCESSES:
        if process.name not in arguments.processes:
            continue
        print(f"== {process.name}", file=sys.stderr, flush=True)
        wanted = [
            case.name
            for case in CASES
            if case.name in arguments.cases
            and (process.name == "native" or not case.native_only)
            and not (process.count and case.threads > 1)
        ]
        runs[process.name] = run(process, wanted, arguments)
    result = {
        "provenance": provenance("peers/allocator_pairs.py"),
        "rounds": arguments.rounds,
        "simulated": arguments.simulated,
        "bars": bars(runs),
        "processes": runs,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(to_json(result))
    print(table(runs))
    print(json.dumps(result["bars"], indent=1))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
