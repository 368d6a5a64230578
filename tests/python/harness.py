"""Runs small programs in a Python of their own: stock PyTorch on the simulated GPU.

An allocator belongs to a process, so each test has one or more. A program is text; it finds
`torch`, `offcut` and `report(value)` defined, and what it reports comes back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offcut

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("OFFCUT_TEST_BUILD_DIR", ROOT / "build" / "release")).absolute()
PACKAGE = BUILD / "package" / "offcut"
LIBRARY = PACKAGE / "lib" / "liboffcut.so"
MARK = "REPORT "

MIB = 1 << 20

PRELUDE = """\
import json, os, sys
import torch
import offcut
def report(value):
    print({mark!r} + json.dumps(value), flush=True)
torch.backends.cudnn.enabled = False
torch.backends.cuda.enable_cudnn_sdp(False)
"""


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str

    @property
    def reports(self) -> list[Any]:
        lines = self.stdout.splitlines()
        return [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]

    @property
    def value(self) -> Any:
        assert len(self.reports) == 1, f"one report expected:\n{self.stdout}\n{self.stderr}"
        return self.reports[0]


def clean_environment() -> dict[str, str]:
    """The environment of this process, less what would change a test."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OFFCUT_", "PYTORCH_", "CUDA_", "LD_PRELOAD"))
    }


def on_gpu() -> dict[str, str]:
    """The real one: what chooses among several is kept."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {**clean_environment(), **({"CUDA_VISIBLE_DEVICES": chosen} if chosen else {})}


def simulated(settings: Mapping[str, Any] | None = None) -> dict[str, str]:
    wanted = offcut.simulated_environment(**(settings or {}))
    return {**clean_environment(), **{name: wanted[name] for name in ("LD_PRELOAD", "OFFCUT_SIM")}}


def program_text(code: str, *, enable: bool) -> str:
    text = PRELUDE.format(mark=MARK) + ("offcut.enable()\n" if enable else "")
    return text + textwrap.dedent(code)


def run(
    code: str,
    *,
    enable: bool = True,
    machine: str = "simulated",
    sim: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    returncode: int = 0,
    **options: Any,
) -> Run:
    """Runs `code` with Offcut enabled or not; `machine` is "simulated", "gpu", or "bare" of any."""
    base = {"simulated": lambda: simulated(sim), "gpu": on_gpu, "bare": clean_environment}[
        machine
    ]()
    done = subprocess.run(
        [sys.executable, "-c", program_text(code, enable=enable)],
        env={**base, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        **options,
    )
    result = Run(done.returncode, done.stdout, done.stderr)
    assert result.returncode == returncode, (
        f"exit {result.returncode}, not {returncode}\n{result.stdout[-4000:]}\n"
        f"{result.stderr[-8000:]}"
    )
    return result


def offcut_program(*arguments: str | Path, returncode: int | None = 0) -> str:
    """Runs `offcut ...` and returns what it printed."""
    done = subprocess.run(
        [PACKAGE / "bin" / "offcut", *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if returncode is not None:
        assert done.returncode == returncode, (
            f"{arguments}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def inspect(recording: Path) -> Any:
    return json.loads(offcut_program("inspect", "--json", recording))
