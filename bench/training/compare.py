"""Trains four kinds of models under PyTorch's own allocator and under Offcut, side by side.

Each run is a process of its own, and each round runs all of them in turn: PyTorch's native
allocator, the same with expandable segments, Offcut with a recording, and that once more with
1.02 times the memory that its live bytes needed. Where native's rounds give equal losses, bit for
bit, Offcut's must be the same. A step's time is its best over the rounds: steps differ in length,
and whatever else the host does only adds. Writes losses, step times and peaks of all runs as JSON,
and prints the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _results import provenance, results_folder, to_json

WORKLOADS = ("llama", "mixture_of_experts", "detection", "generation")  # of models.py
# Of the live bytes' peak, in the capped run.
CAP = 1.02
# The first steps load kernels and grow the memory; they are reported, and left out of the medians.
WARM_UP_STEPS = 5
MIB = 1 << 20


@dataclass(frozen=True)
class Run:
    name: str
    offcut: bool = False
    capped: bool = False
    conf: str = ""  # PYTORCH_CUDA_ALLOC_CONF
    peer: str = "native"  # whose step times it is held against


RUNS = (
    Run("native"),
    Run("expandable_segments", conf="expandable_segments:True"),
    Run("offcut", offcut=True),
    Run("offcut_capped", offcut=True, capped=True, peer="offcut"),
)


def train(
    run: Run, workload: str, cap_bytes: int | None, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The figures of train.py; {"error": ...} if it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "figures.json"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OFFCUT_RECORD", "OFFCUT_CONF", "PYTORCH_"))
        }
        environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        environment["PYTORCH_CUDA_ALLOC_CONF"] = run.conf
        if arguments.simulated:
            import offcut  # noqa: PLC0415 - a GPU needs none of it here

            simulated = offcut.simulated_environment()
            environment.update({name: simulated[name] for name in ("LD_PRELOAD", "OFFCUT_SIM")})
        if run.offcut:
            environment["OFFCUT_RECORD"] = str(Path(scratch) / "recording")
        if cap_bytes is not None:
            environment["OFFCUT_CONF"] = f"memory_limit_mb:{cap_bytes // MIB}"
        done = subprocess.run(
            [
                *(sys.executable, Path(__file__).with_name("train.py"), "--out", out),
                *("--workload", workload, "--steps", str(arguments.steps)),
                *("--scale", str(arguments.scale), "--seed", str(arguments.seed)),
                *(["--offcut"] if run.offcut else []),
                *(["--no-cudnn"] if arguments.simulated else []),
            ],
            env=environment,
            check=False,
            stdout=sys.stderr,
        )
        if done.returncode != 0:
            return {"error": f"exit {done.returncode}"}
        figures: dict[str, Any] = json.loads(out.read_text())
        return {**figures, "cap_bytes": cap_bytes}


def first_difference(one: list[float], other: list[float]) -> int | None:
    """The first step whose losses are not the same number."""
    return next(
        (i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None
    )


def best_step_seconds(rounds: list[dict[str, Any]]) -> list[float]:
    return [min(times) for times in zip(*(r["step_seconds"] for r in rounds), strict=True)]


def step_time_ratio(rounds: list[dict[str, Any]], peer: list[dict[str, Any]]) -> float:
    """Median over the steps, each against the same step of the peer."""
    pairs = zip(best_step_seconds(rounds), best_step_seconds(peer), strict=True)
    return statistics.median(own / other for own, other in list(pairs)[WARM_UP_STEPS:])


def compare(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    native = runs["native"]
    if any("error" in one for rounds in runs.values() for one in rounds):
        return {name: [one.get("error", "finished") for one in r] for name, r in runs.items()}
    expected = native[0]["losses"]
    compared: dict[str, Any] = {
        "native_runs_agree_to_the_bit": all(run["losses"] == expected for run in native)
    }
    for run in RUNS:
        rounds = runs[run.name]
        compared[run.name] = {
            "live_over_reserved": rounds[0]["peak_live_bytes"] / rounds[0]["peak_reserved_bytes"],
            "peak_reserved_gib": round(rounds[0]["peak_reserved_bytes"] / 2**30, 3),
        }
        if run.name == "native":
            continue
        compared[run.name] |= {
            "losses_equal_native_to_the_bit": all(one["losses"] == expected for one in rounds),
            "first_different_step": first_difference(rounds[0]["losses"], expected),
            f"step_time_over_{run.peer}": step_time_ratio(rounds, runs[run.peer]),
            "reserved_over_native": rounds[0]["peak_reserved_bytes"]
            / native[0]["peak_reserved_bytes"],
        }
    return compared


def measure(workload: str, arguments: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {run.name: [] for run in RUNS}
    for number in range(1, arguments.rounds + 1):
        for run in RUNS:
            print(f"== {workload}, {run.name}, round {number}", file=sys.stderr, flush=True)
            cap_bytes = None
            if run.capped:
                live = runs[run.peer][0].get("peak_live_bytes", 0)
                cap_bytes = int(CAP * live)
            runs[run.name].append(train(run, workload, cap_bytes, arguments))
    return {"comparison": compare(runs), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulated", action="store_true", help="tries this program out, no more")
    parser.add_argument("--out", type=Path, default=results_folder() / "training_compare.json")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {arguments.steps}: more than {WARM_UP_STEPS} are needed")
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: 2 tell whether native repeats itself")

    result: dict[str, Any] = {
        "provenance": provenance("training/compare.py"),
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "scale": arguments.scale,
        "cap_over_live": CAP,
        "warm_up_steps": WARM_UP_STEPS,
        "simulated": arguments.simulated,
        "workloads": {},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for workload in arguments.workloads:
        found = measure(workload, arguments)
        result["workloads"][workload] = found
        arguments.out.write_text(to_json(result))  # what there is, should the next one fail
        print(workload, json.dumps(found["comparison"], indent=1), flush=True)
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
