"""Random programs over every operation of the allocator, as many as asked for: what they found.

Most are played alone, some with several threads on one machine. The whole state is looked at every
CHECK_EVERY operations and at the end of each program, which has some hundreds. Seeds are disjoint
between jobs, and between runs that begin at seeds less than 2^40 apart. Writes a JSON file of what
was played, by operation, and of every failure; exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _results import ROOT, provenance, results_folder, to_json

BUILD = Path(os.environ.get("OFFCUT_TEST_BUILD_DIR", ROOT / "build" / "release"))
CHECK_EVERY = 50
THREADS = 4
THREADS_SHARE = 0.03  # of all operations: four threads take turns at one lock


def fuzz(operations: float, jobs: int, seed: int, *, threads: int) -> Any:
    done = subprocess.run(
        [
            BUILD / "tests" / "fuzz" / "allocator_fuzz",
            "--json",
            *("--operations", str(int(operations))),
            *("--jobs", str(jobs)),
            *("--seed", str(seed)),
            *("--threads", str(threads)),
            *("--check-every", str(CHECK_EVERY)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=results_folder() / "random_programs.json")
    asked = parser.parse_args()

    several = asked.operations * THREADS_SHARE
    runs = {
        "alone": fuzz(asked.operations - several, asked.jobs, asked.seed, threads=1),
        "threads": fuzz(several, max(1, asked.jobs // THREADS), asked.seed, threads=THREADS),
    }
    failures = sum(len(run["failures"]) for run in runs.values())
    result = {
        "provenance": provenance("random_programs"),
        "operations": sum(run["operations"] for run in runs.values()),
        "programs": sum(run["programs"] for run in runs.values()),
        "failures": failures,
        **runs,
    }
    asked.out.write_text(to_json(result))
    for name, run in runs.items():
        print(
            f"{name}: {run['operations']} operations in {run['programs']} programs,"
            f" {run['operations_per_second']:.0f} a second, {len(run['failures'])} failures"
        )
        print(run["first_failure"], end="")
    print(f"written: {asked.out}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
