"""Trains the demo's model under PyTorch's own allocator and under Offcut, side by side.

Rounds of three runs, each in a process of its own: native, Offcut, Offcut with a recording. With
deterministic algorithms, native's rounds give equal losses, bit for bit; then Offcut's must be the
same. A step's time is its best over the rounds: steps differ in length, and whatever else the host
does only adds. Writes losses, step times and peaks of all runs as JSON, and prints the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _results import ROOT, provenance, results_folder, to_json

TRAIN = ROOT / "pytorch_plugin" / "demo" / "train.py"
# name, allocator, whether it records
RUNS = (
    ("native", "native", False),
    ("offcut", "offcut", False),
    ("offcut_recording", "offcut", True),
)
# The first steps load kernels and grow the memory; they are reported, and left out of the medians.
WARM_UP_STEPS = 5
FIGURES = ("peak_requested_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "allocations")


def train(allocator: str, record: bool, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "figures.json"
        environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        environment.pop("OFFCUT_RECORD", None)
        if arguments.simulated:
            import offcut  # noqa: PLC0415 - a GPU needs none of it here

            simulated = offcut.simulated_environment()
            environment.update({name: simulated[name] for name in ("LD_PRELOAD", "OFFCUT_SIM")})
        if record:
            environment["OFFCUT_RECORD"] = str(Path(scratch) / "recording")
        subprocess.run(
            [
                *(sys.executable, TRAIN, "--deterministic", "--json-out", out),
                *("--allocator", allocator, "--steps", str(arguments.steps)),
                *("--batch", str(arguments.batch), "--seed", str(arguments.seed)),
            ],
            env=environment,
            check=True,
            stdout=sys.stderr,
        )
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def first_difference(one: list[float], other: list[float]) -> int | None:
    """The first step whose losses are not the same number."""
    return next(
        (i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None
    )


def best_step_seconds(rounds: list[dict[str, Any]]) -> list[float]:
    return [min(times) for times in zip(*(r["step_seconds"] for r in rounds), strict=True)]


def step_time_ratio(rounds: list[dict[str, Any]], native: list[dict[str, Any]]) -> float:
    """Median over the steps, each against the same step of native."""
    pairs = zip(best_step_seconds(rounds), best_step_seconds(native), strict=True)
    return statistics.median(own / other for own, other in list(pairs)[WARM_UP_STEPS:])


def compare(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    native = runs["native"]
    expected = native[0]["losses"]
    return {
        "native_runs_agree_to_the_bit": all(run["losses"] == expected for run in native),
        "offcut": {
            name: {
                "losses_equal_to_the_bit": all(run["losses"] == expected for run in rounds),
                "first_different_step": first_difference(rounds[0]["losses"], expected),
                "step_time_over_native": step_time_ratio(rounds, native),
                **{
                    f"{figure}_over_native": rounds[0][figure] / native[0][figure]
                    for figure in FIGURES
                    if native[0][figure]
                },
            }
            for name, rounds in runs.items()
            if name != "native"
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulated", action="store_true", help="tries this program out, no more")
    parser.add_argument(
        "--out",
        type=Path,
        default=results_folder() / "training_compare.json",
    )
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {arguments.steps}: more than {WARM_UP_STEPS} are needed")
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: 2 tell whether native repeats itself")

    runs: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in RUNS}
    for number in range(1, arguments.rounds + 1):
        for name, allocator, record in RUNS:
            print(f"== {name}, round {number}", file=sys.stderr, flush=True)
            runs[name].append({"records": record, **train(allocator, record, arguments)})
    result = {
        "provenance": provenance("training/compare.py"),
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "batch": arguments.batch,
        "warm_up_steps": WARM_UP_STEPS,
        "simulated": arguments.simulated,
        "comparison": compare(runs),
        "runs": runs,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(to_json(result))
    print(json.dumps(result["comparison"], indent=1))
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
