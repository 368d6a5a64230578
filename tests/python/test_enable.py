"""offcut.enable(): when it works, and what it says when it cannot."""

import shutil
import subprocess
import sys
from pathlib import Path

import offcut
from harness import LIBRARY, clean_environment, run


def test_enable_before_cuda_makes_offcut_the_allocator() -> None:
    done = run("""
        assert offcut.enabled()
        assert not torch.cuda.is_initialized()
        x = torch.empty(1000, device="cuda")
        report([torch.cuda.memory_stats()["allocation.all.current"],
                offcut.counters()["allocations"]["all"].current])
    """)
    assert done.value == [1, 1]


def test_is_not_enabled_by_import_alone() -> None:
    assert run("report(offcut.enabled())", enable=False).value is False


def test_a_second_enable_is_fine() -> None:
    done = run("""
        offcut.enable()
        x = torch.empty(1000, device="cuda")
        offcut.enable()
        report(offcut.enabled())
    """)
    assert done.value is True


def test_refuses_once_cuda_is_initialised() -> None:
    done = run(
        """
        x = torch.empty(1000, device="cuda")
        try:
            offcut.enable()
        except offcut.Error as error:
            report(str(error))
        y = torch.empty(1000, device="cuda")  # native goes on
        assert not offcut.enabled()
        """,
        enable=False,
    )
    assert "already initialised" in done.value
    assert "before the first use" in done.value


def test_refuses_when_another_allocator_is_in_place() -> None:
    done = run(
        f"""
        other = torch.cuda.memory.CUDAPluggableAllocator(
            {str(LIBRARY)!r}, "offcut_malloc", "offcut_free")
        torch.cuda.memory.change_current_allocator(other)
        try:
            offcut.enable()
        except offcut.Error as error:
            report(str(error))
        """,
        enable=False,
    )
    assert "another allocator is in place" in done.value


def test_refuses_another_minor_version_before_loading_the_shim() -> None:
    done = run(
        """
        torch.__version__ = "2.12.1+cu130"
        try:
            offcut.enable()
        except offcut.Error as error:
            report(str(error))
        assert "liboffcut_torch" not in open("/proc/self/maps").read()
        """,
        enable=False,
    )
    assert "built for PyTorch 2.11" in done.value
    assert "2.12.1+cu130" in done.value


def test_refuses_a_pytorch_without_cuda() -> None:
    done = run(
        """
        torch.version.cuda = None
        try:
            offcut.enable()
        except offcut.Error as error:
            report(str(error))
        """,
        enable=False,
    )
    assert "without CUDA" in done.value


def test_refuses_without_a_driver_and_the_program_goes_on() -> None:
    done = run(
        """
        try:
            offcut.enable()
        except offcut.Error as error:
            report(str(error))
        assert torch.ones(3).sum() == 3
        """,
        enable=False,
        machine="bare",
        # A machine with a driver has to look like one without.
        environment={"LD_LIBRARY_PATH": "/nonexistent"},
    )
    assert "no CUDA driver" in done.value
    assert "simulated_environment" in done.value


def test_names_the_missing_library(tmp_path: Path) -> None:
    sources = Path(offcut.__file__).parent
    shutil.copytree(sources, tmp_path / "offcut", ignore=shutil.ignore_patterns("lib", "bin"))
    done = subprocess.run(
        [sys.executable, "-c", "import offcut; offcut.enable()"],
        env={**clean_environment(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{tmp_path}/offcut/lib/liboffcut.so is missing" in done.stderr


def test_reports_bad_options_once_and_training_goes_on() -> None:
    done = run(
        """
        x = torch.empty(1000, device="cuda")
        del x
        torch.cuda.empty_cache()
        report(offcut.enabled())
        """,
        environment={"OFFCUT_CONF": "expandable_segment:True"},
    )
    assert done.value is True
    assert done.stderr.count("unknown option 'expandable_segment'") == 1, done.stderr
    assert "expandable_segments" in done.stderr


def test_the_name_is_what_pytorch_asserts_for_its_own_setting() -> None:
    done = run(
        """
        x = torch.ones(1000).pin_memory()  # parses the setting, and compares
        report(torch.cuda.get_allocator_backend())
        """,
        environment={"PYTORCH_CUDA_ALLOC_CONF": "backend:native"},
    )
    assert done.value == "native"


def test_serves_torch_accelerator_too() -> None:
    done = run("""
        x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        report([torch.accelerator.memory_allocated(), torch.cuda.memory_allocated()])
    """)
    assert done.value == [1 << 20, 1 << 20]
