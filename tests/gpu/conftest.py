"""For tests that need a real GPU (./dev gpu-test). Without one they are skipped, and say why."""

import ctypes
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))


def _why_no_gpu() -> str | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1)"
    count = ctypes.c_int()
    result = cuda.cuInit(0)
    if result != 0:
        return f"the NVIDIA driver does not start (cuInit: {result})"
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the NVIDIA driver sees no GPU"
    return None


WHY_NO_GPU = _why_no_gpu()


@pytest.fixture(autouse=True)
def _needs_gpu() -> None:
    if WHY_NO_GPU is not None:
        pytest.skip(WHY_NO_GPU)
