"""Trains the demo's model under PyTorch's own allocator and under Offcut, side by side.

Four runs in turn, each in a process of its own: native, Offcut, Offcut with a recording, native.
With deterministic algorithms, the two native runs give equal losses, bit for bit; then Offcut's
must be the same. Writes losses, step times and peaks of all as JSON, and prints the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "pytorch_plugin" / "demo" / "train.py"
# name, allocator, whether it records
RUNS = (
    ("native", "native", False),
    ("offcut", "offcut", False),
    ("offcut_recording", "offcut", True),
    ("native_again", "native", False),
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


def step_time_ratio(run: dict[str, Any], base: list[dict[str, Any]]) -> float:
    """Median over the steps, each against the faster native run's: steps differ in length."""
    steps = zip(run["step_seconds"], *(b["step_seconds"] for b in base), strict=True)
    return statistics.median(own / min(native) for own, *native in list(steps)[WARM_UP_STEPS:])


def compare(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    native = runs["native"]
    both = [native, runs["native_again"]]
    return {
        "native_runs_agree_to_the_bit": native["losses"] == runs["native_again"]["losses"],
        "offcut": {
            name: {
                "losses_equal_to_the_bit": run["losses"] == native["losses"],
                "first_different_step": first_difference(run["losses"], native["losses"]),
                "step_time_over_native": step_time_ratio(run, both),
                **{
                    f"{figure}_over_native": run[figure] / native[figure]
                    for figure in FIGURES
                    if native[figure]
                },
            }
            for name, run in runs.items()
            if run["allocator"] == "offcut"
        },
    }


def output_of(*command: str) -> str:
    """What a command prints; "" where it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def provenance() -> dict[str, str | int | None]:
    """What a stranger needs to get the figures again. OFFCUT_COMMIT: for a tree without git."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    commit = os.environ.get("OFFCUT_COMMIT") or output_of("git", "rev-parse", "HEAD")
    return {
        "command": shlex.join(["./dev", "bench", "training/compare.py", *sys.argv[1:]]),
        "commit": commit or "unknown",
        "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "cpu": cpus[0].split(":", 1)[1].strip() if cpus else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def to_json(result: dict[str, Any]) -> str:
    """Indented, but with a list of numbers on one line."""
    text = json.dumps(result, indent=1)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulated", action="store_true", help="tries this program out, no more")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(os.environ.get("OFFCUT_BENCH_RESULTS", ROOT / "bench" / "results"))
        / "training_compare.json",
    )
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {arguments.steps}: more than {WARM_UP_STEPS} are needed")

    runs = {}
    for name, allocator, record in RUNS:
        print(f"== {name}", file=sys.stderr, flush=True)
        runs[name] = {"records": record, **train(allocator, record, arguments)}
        measured = runs[name]["step_seconds"][WARM_UP_STEPS:]
        runs[name]["median_step_seconds"] = statistics.median(measured)
    result = {
        "provenance": provenance(),
        "steps": arguments.steps,
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
