"""What a training run leaves on disk: that it is the truth, and that it survives the run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness import (
    BUILD,
    MARK,
    ROOT,
    inspect,
    offcut_program,
    program_text,
    run,
    simulated,
)

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = ROOT / "pytorch_plugin" / "demo" / "train.py"
SMALL_MODEL = {
    "steps": 6,
    "layers": 3,
    "width": 128,
    "heads": 4,
    "vocabulary": 1000,
    "batch": 4,
    "max-length": 256,
}


def train(allocator: str, *arguments: str) -> str:
    """The demo's training, as a part of a program."""
    settings = (f"--{name}={value}" for name, value in SMALL_MODEL.items())
    argv = [str(TRAIN), *settings, "--allocator", allocator, *arguments]
    return f"""
import runpy
sys.argv = {argv!r}
runpy.run_path({str(TRAIN)!r}, run_name="__main__")
"""


def dump(recording: Path) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """All events of the one process and device in `recording`, and the counters they fold to."""
    done = subprocess.run(
        [BUILD / "tests" / "python" / "dump_events", recording],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, counters = done.stdout.splitlines()
    events = []
    for line in lines:
        name, *numbers = line.split()
        events.append((name, *map(int, numbers)))
    return events, json.loads(counters)


def only_process(recording: Path) -> Path:
    (process,) = recording.iterdir()
    return process


def test_asks_for_the_same_sizes_in_the_same_order_as_native(tmp_path: Path) -> None:
    native = run(
        """
torch.cuda.memory._record_memory_history(stacks="python", context=None)
"""
        + train("native")
        + """
(trace,) = torch.cuda.memory._snapshot()["device_traces"]
report([entry["size"] for entry in trace if entry["action"] == "alloc"])
""",
        enable=False,
    ).reports[-1]
    run(train("offcut"), environment={"OFFCUT_RECORD": str(tmp_path)})
    events, _ = dump(tmp_path)
    ours = [size for name, _, size, _ in events if name == "BlockAllocated"]
    assert len(native) > 1000
    assert [size for size in native if size != 0] == ours


def test_holds_exactly_what_an_allocator_in_between_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(
        f"""
from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
change_current_allocator(CUDAPluggableAllocator(
    {str(BUILD / "tests" / "python" / "libcounting_allocator.so")!r},
    "counting_malloc", "counting_free"))
torch.cuda.memory_stats = lambda: __import__("collections").defaultdict(int)
torch.cuda.memory_reserved = lambda: 0
"""
        + train("native")
        + "os._exit(0)  # what comes after is freed when the recording is closed already",
        enable=False,
        environment={
            "OFFCUT_RECORD": str(tmp_path / "recording"),
            "COUNTING_ALLOCATOR_LOG": str(log),
        },
    )
    counted = []
    sizes = {}
    for line in log.read_text().splitlines():
        what, pointer, size = line.split()
        if pointer == "0":  # a request for no bytes is none
            continue
        if what == "malloc":
            sizes[pointer] = int(size)
            counted.append(("BlockAllocated", int(pointer), int(size)))
        else:
            counted.append(("BlockFreed", int(pointer), sizes[pointer]))
    events, counters = dump(tmp_path / "recording")
    recorded = [
        (name, address, size)
        for name, address, size, _ in events
        if name in ("BlockAllocated", "BlockFreed", "BlockFreePended")
    ]
    assert len(counted) > 1000
    assert recorded == counted
    assert counters["invalid_frees"] == 0


def test_the_counters_are_the_fold_of_the_events_in_the_file(tmp_path: Path) -> None:
    done = run(
        train("offcut")
        + """
side = torch.cuda.Stream()
x = torch.empty(40 << 20, device="cuda")
x.record_stream(side)
del x
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
torch.cuda.empty_cache()
y = torch.empty(12345, dtype=torch.uint8, device="cuda")
report([offcut.counters(), offcut.recording_directory()])
os._exit(0)  # nothing comes after
""",
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    counters, directory = done.reports[-1]
    assert directory == str(only_process(tmp_path))
    _, folded = dump(tmp_path)
    assert folded == counters
    assert counters["stream_uses"] == 1
    assert counters["out_of_memory"] == 1
    assert counters["cache_flushes"] == 1
    assert counters["steps"] == 6
    inspected = inspect(tmp_path)
    assert inspected["allocations"] == counters["allocations"]["all"][2]
    assert inspected["peak_live_bytes"] == counters["live_bytes"]["all"][1]
    assert inspected["peak_reserved_bytes"] == counters["reserved_bytes"]["all"][1]
    assert inspected["devices"][0]["end_live_bytes"] == counters["live_bytes"]["all"][0]
    assert inspected["devices"][0]["inconsistencies"] == 0
    offcut_program("check", tmp_path)


def test_resets_are_in_the_file_too(tmp_path: Path) -> None:
    done = run(
        """
x = torch.empty(40 << 20, device="cuda")
del x
torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
y = torch.empty(12345, dtype=torch.uint8, device="cuda")
report(offcut.counters())
os._exit(0)
""",
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    _, folded = dump(tmp_path)
    assert folded == done.value


def test_steps_count_on_from_the_last_number(tmp_path: Path) -> None:
    run(
        """
torch.empty(1, device="cuda")
offcut.step()
offcut.step()
offcut.step(40)
offcut.step()
""",
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    events, _ = dump(tmp_path)
    assert [number for name, _, number, _ in events if name == "StepMarked"] == [0, 1, 40, 41]


def test_a_closed_recording_is_complete_and_private(tmp_path: Path) -> None:
    run(train("offcut"), environment={"OFFCUT_RECORD": str(tmp_path)})
    process = only_process(tmp_path)
    assert process.stat().st_mode & 0o777 == 0o700
    files = list(process.iterdir())
    assert files
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    offcut_program("check", tmp_path)
    assert inspect(tmp_path)["devices"][0]["closed"] is True


def test_a_killed_training_leaves_a_readable_recording(tmp_path: Path) -> None:
    text = program_text(
        """
kept = []
number = 0
while True:
    offcut.step(number)
    kept.append(torch.empty(100_000, dtype=torch.uint8, device="cuda"))
    for size in range(1000, 100_000, 1000):
        torch.empty(size, dtype=torch.uint8, device="cuda")
    number += 1
    if number % 100 == 0:
        report(offcut.counters()["allocations"]["all"].risen)
""",
        enable=True,
    )
    with subprocess.Popen(
        [sys.executable, "-c", text],
        env={**simulated(), "OFFCUT_RECORD": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        allocations = 0
        for line in process.stdout:
            if line.startswith(MARK):
                allocations = int(line.removeprefix(MARK))
            if allocations > 50_000:
                break
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    offcut_program("check", tmp_path)
    events, counters = dump(tmp_path)
    assert counters["allocations"]["all"][2] >= allocations
    names = Counter(name for name, *_ in events)
    assert names["BlockAllocated"] - names["BlockFreed"] == counters["allocations"]["all"][0]
    assert inspect(tmp_path)["devices"][0]["closed"] is False


def test_a_directory_that_cannot_be_made_is_reported_once_and_training_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    bad = tmp_path / "file" / "recording"
    done = run(
        train("offcut") + "report([offcut.enabled(), offcut.recording_directory()])",
        environment={"OFFCUT_RECORD": str(bad)},
    )
    assert done.value == [True, ""]
    assert done.stderr.count(str(bad)) == 1, done.stderr


def test_a_full_disk_at_the_start_is_reported_and_training_goes_on(tmp_path: Path) -> None:
    done = run(
        """
import resource
torch.cuda.init()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # less than the ring
"""
        + train("offcut")
        + "report(offcut.enabled())",
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    assert done.value is True
    assert done.stderr.count("going on without recording device 0") == 1, done.stderr


def test_a_disk_that_fills_up_costs_events_and_nothing_else(tmp_path: Path) -> None:
    done = run(
        """
import resource
def work(n):
    for _ in range(n):
        torch.empty(1000, dtype=torch.uint8, device="cuda")
work(1000)
offcut.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
work(400_000)  # more events than the ring holds
report(offcut.counters()["allocations"]["all"].risen)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
""",
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    assert done.value == 401_000
    assert inspect(tmp_path)["dropped_events"] > 0


def test_two_processes_record_beside_each_other(tmp_path: Path) -> None:
    environment = {**simulated(), "OFFCUT_RECORD": str(tmp_path)}
    text = program_text("x = torch.empty(1000, device='cuda')", enable=True)
    processes = [subprocess.Popen([sys.executable, "-c", text], env=environment) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2
    offcut_program("check", tmp_path)


def test_no_file_is_made_when_nothing_is_recorded(tmp_path: Path) -> None:
    run(train("offcut"), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
