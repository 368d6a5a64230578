"""The Python package itself, without a GPU."""

import subprocess
import sys

import offcut
import pytest
from harness import PACKAGE, clean_environment


def test_the_package_and_the_library_are_of_one_version() -> None:
    assert offcut.version() == offcut.__version__


def test_options_have_value_origin_and_meaning() -> None:
    by_key = {option["key"]: option for option in offcut.options()}
    assert "expandable_segments" in by_key
    assert "memory_limit_mb" in by_key


def test_nothing_is_recorded_unless_asked_for() -> None:
    code = "import offcut; print(repr(offcut.recording_directory()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "''\n"


def test_importing_offcut_imports_neither_pytorch_nor_the_library() -> None:
    code = (
        "import sys, offcut; print('torch' in sys.modules, "
        "'liboffcut' in open('/proc/self/maps').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False\n"


def test_the_library_loads_without_a_driver() -> None:
    code = """
import ctypes, offcut
from offcut import _library
library = _library.load()
out = ctypes.c_void_p()
library.offcut_allocate.argtypes = [
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
print(library.offcut_allocate(0, None, 512, ctypes.byref(out)), out.value)
print(library.offcut_last_error().decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean_environment(), "LD_LIBRARY_PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    first, error = done.stdout.splitlines()
    assert first == "3 None"  # OFFCUT_NO_DRIVER
    assert "libcuda.so.1" in error


def test_simulated_environment_names_the_card_and_keeps_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("KEPT", "yes")
    found = offcut.simulated_environment("H100", memory="40GiB", devices=2, lag="5ms")
    assert found["LD_PRELOAD"] == str(PACKAGE / "lib" / "liboffcut_cudasim.so")
    assert found["OFFCUT_SIM"] == "H100,memory=40GiB,devices=2,lag=5ms"
    assert found["KEPT"] == "yes"


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_step_that_no_counter_can_hold_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        offcut.step(number)


def test_python_m_offcut_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "offcut", "--help"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "inspect" in done.stdout
