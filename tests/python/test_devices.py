"""Several GPUs in one process: each has its allocator, its figures and its recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import MIB, inspect, offcut_program, run

if TYPE_CHECKING:
    from pathlib import Path


def test_each_device_has_its_own_figures_and_recording(tmp_path: Path) -> None:
    done = run(
        """
        first = torch.empty(30 << 20, dtype=torch.uint8, device="cuda:0")
        second = torch.empty(70 << 20, dtype=torch.uint8, device="cuda:1")
        torch.cuda.set_device(1)
        del first  # freed while the other device is current
        third = second.to("cuda:0")
        offcut.step()
        report([[torch.cuda.memory_allocated(d), torch.cuda.memory_reserved(d)] for d in (0, 1)])
        """,
        sim={"devices": 2},
        environment={"OFFCUT_RECORD": str(tmp_path)},
    )
    assert done.value == [[70 * MIB, 70 * MIB], [70 * MIB, 70 * MIB]]
    summary = inspect(tmp_path)
    figures = {d["device"]: (d["peak_live_bytes"], d["steps"]) for d in summary["devices"]}
    assert figures == {0: (70 * MIB, 1), 1: (70 * MIB, 1)}
    assert summary["device"] in figures
    offcut_program("check", tmp_path)


def test_a_limit_on_one_device_leaves_the_other_alone() -> None:
    done = run(
        """
        torch.cuda.set_per_process_memory_fraction(0.25, device=1)
        report(torch.empty(600 << 20, dtype=torch.uint8, device="cuda:0").device.index)
        try:
            torch.empty(600 << 20, dtype=torch.uint8, device="cuda:1")
        except torch.OutOfMemoryError as error:
            report(str(error).split(". ")[1])
        """,
        sim={"devices": 2, "memory": "2GiB"},
    )
    assert done.reports[0] == 0
    assert done.reports[1].startswith("Tried to allocate 600.00 MiB")


def test_a_device_that_does_not_exist_is_named() -> None:
    done = run(
        """
        import ctypes
        library = ctypes.CDLL(os.path.join(os.path.dirname(offcut.__file__), "lib/liboffcut.so"))
        library.offcut_malloc.restype = ctypes.c_void_p
        library.offcut_last_error.restype = ctypes.c_char_p
        torch.empty(1, device="cuda:0")
        for device in (2, -1, 1 << 20):
            pointer = library.offcut_malloc(ctypes.c_ssize_t(512), device, None)
            report([pointer, library.offcut_last_error().decode()])
        """,
        sim={"devices": 2},
    )
    assert done.reports == [
        [None, f"device {device} does not exist; there are 2, from 0 on"]
        for device in (2, -1, 1 << 20)
    ]
