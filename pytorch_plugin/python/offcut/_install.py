"""Makes Offcut the CUDA allocator of PyTorch in this process."""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any

from offcut import _library
from offcut._errors import Error
from offcut._paths import part

# PyTorch calls a shim's virtual functions by position: of another minor version, the wrong ones.
_SUPPORTED = ("2.11",)


def enable() -> None:
    """Makes Offcut PyTorch's CUDA allocator. Call it before the first use of CUDA.

    May be called again. Does not initialise CUDA, so that a program may fork afterwards. Raises
    offcut.Error, with the reason, where it cannot be done; the program may then go on without.
    """
    import torch  # noqa: PLC0415 - `import offcut` is cheap, and useful without PyTorch

    _refuse_other_torch(torch)
    shim = _load_shim(torch)
    if shim.offcut_torch_installed():
        return
    if torch.cuda.is_initialized():
        raise Error(
            "CUDA is already initialised in this process: call offcut.enable() before the first "
            "use of CUDA, best right after `import torch`"
        )
    _refuse_missing_driver()
    reason = shim.offcut_torch_install()
    if reason is not None:
        raise Error(_library.text(reason))


def enabled() -> bool:
    """Whether Offcut is PyTorch's CUDA allocator in this process."""
    if not _load_shim.cache_info().currsize:
        return False
    import torch  # noqa: PLC0415

    return bool(_load_shim(torch).offcut_torch_installed())


def _refuse_other_torch(torch: Any) -> None:
    version = str(torch.__version__)
    found = re.match(r"(\d+\.\d+)\.", version)
    if found is None or found[1] not in _SUPPORTED:
        raise Error(
            f"this Offcut is built for PyTorch {', '.join(_SUPPORTED)}, and this is PyTorch "
            f"{version}. liboffcut.so itself serves every version, as a CUDAPluggableAllocator"
        )
    if torch.version.cuda is None:
        raise Error(f"PyTorch {version} is built without CUDA: there is nothing to allocate")


@functools.cache
def _load_shim(torch: Any) -> ctypes.CDLL:
    _library.load()
    minor = ".".join(str(torch.__version__).split(".")[:2])
    path = part(f"lib/liboffcut_torch_{minor.replace('.', '_')}.so")
    try:
        shim = ctypes.CDLL(str(path))
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}") from error
    shim.offcut_torch_install.restype = ctypes.c_char_p
    shim.offcut_torch_install.argtypes = []
    shim.offcut_torch_installed.restype = ctypes.c_int
    shim.offcut_torch_installed.argtypes = []
    return shim


def _refuse_missing_driver() -> None:
    # Loading the driver initialises nothing; asking PyTorch for the devices would, and no process
    # can fork after that.
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Error(
            f"there is no CUDA driver on this machine ({error}). "
            "offcut.simulated_environment() tells how to run on a simulated GPU"
        ) from error
