"""The demo: records a training run, checks the recording, and makes a report of it.

Trains on the GPU if there is one, else on the simulated GPU. Started by `./dev demo`.
"""

# ruff: noqa: T201 - a program prints

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def gpu_name() -> str | None:
    """The first GPU of this machine, asked without PyTorch, which would take seconds."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), 0)
    return name.value.decode(errors="replace")


def shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.1f} {unit}" if unit != "bytes" else f"{number:.0f} bytes"
        number /= 1024
    return f"{number:.2f} GiB"


def train(package: Path, out: Path, arguments: list[str]) -> None:
    sys.path.insert(0, str(package))
    import offcut  # noqa: PLC0415 - the one that was built, wherever that is

    name = gpu_name()
    if name is not None:
        print(f"training on the GPU of this machine, {name}", flush=True)
        environment = dict(os.environ)
    else:
        environment = offcut.simulated_environment("H200")
        print(
            f"there is no GPU here: training on the simulated one ({environment['OFFCUT_SIM']}), "
            "where kernels do nothing and losses mean nothing",
            flush=True,
        )
    environment["OFFCUT_RECORD"] = str(out / "recording")
    environment["PYTHONPATH"] = str(package)
    subprocess.run(
        [sys.executable, HERE / "train.py", "--json-out", out / "figures.json", *arguments],
        env=environment,
        check=True,
    )


def print_figures(inspected: dict[str, Any], figures: dict[str, Any]) -> None:
    # The demo has one process on one device.
    (device,) = inspected["devices"]
    reserved = device["peak_reserved_bytes"]
    rows = (
        ("steps", f"{device['steps']}"),
        ("allocations", f"{device['allocations']:,}"),
        ("peak live", size(device["peak_live_bytes"])),
        ("peak reserved", size(reserved)),
        ("live/reserved", f"{device['peak_live_bytes'] / reserved:.3f}"),
        ("events recorded", f"{device['events']:,} ({device['dropped_events']} dropped)"),
        ("on disk", f"{size(device['chunk_bytes'])}"),
        ("bytes per event", f"{device['chunk_bytes_per_event']:.2f}"),
        ("step time", f"{1e3 * sorted(figures['step_seconds'])[figures['steps'] // 2]:.0f} ms"),
    )
    print()
    for label, value in rows:
        print(f"  {label:16s} {value}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", 1)[0],
        epilog="Further arguments go to train.py.",
    )
    parser.add_argument("--build-dir", type=Path, default=Path("build/release"))
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    arguments, rest = parser.parse_known_args()
    package = (arguments.build_dir / "package").absolute()
    out = arguments.out.absolute()
    program = package / "offcut" / "bin" / "offcut"
    recording, report = out / "recording", out / "report.html"

    start = time.monotonic()
    # Nothing of an earlier demo may be taken for this one's.
    shutil.rmtree(recording, ignore_errors=True)
    report.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)

    train(package, out, rest)
    inspected = json.loads(
        subprocess.run(
            [program, "inspect", "--json", recording], check=True, stdout=subprocess.PIPE
        ).stdout
    )
    subprocess.run([program, "check", recording], check=True)
    subprocess.run([program, "report", recording, "-o", report], check=True)
    print_figures(inspected, json.loads((out / "figures.json").read_text()))
    print(f"done in {time.monotonic() - start:.0f} s; the recording is {shown(recording)}")
    print(f"report: {shown(report)}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:2]))
        sys.exit(f"demo: {command} failed (exit code {error.returncode})")
