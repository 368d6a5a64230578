"""What the result files of all benchmarks have in common."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def output_of(*command: str | Path) -> str:
    """What a command prints; "" where it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def gpus() -> str:
    """Name and driver of each GPU, a line each; "" if there is none."""
    return output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def provenance(benchmark: str) -> dict[str, str | int | None]:
    """What a stranger needs to get the figures again. OFFCUT_COMMIT: for a tree without git."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    commit = os.environ.get("OFFCUT_COMMIT") or output_of("git", "rev-parse", "HEAD")
    return {
        "command": shlex.join(["./dev", "bench", benchmark, *sys.argv[1:]]),
        "commit": commit or "unknown",
        "gpu": gpus(),
        "cpu": cpus[0].split(":", 1)[1].strip() if cpus else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def results_folder() -> Path:
    return Path(os.environ.get("OFFCUT_BENCH_RESULTS", ROOT / "bench" / "results"))


def to_json(result: Any) -> str:
    """Indented, but with a list of numbers on one line."""
    text = json.dumps(result, indent=1)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"
