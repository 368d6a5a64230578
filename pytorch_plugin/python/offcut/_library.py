"""liboffcut.so by ctypes: the functions of offcut.h that Python users need."""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from typing import Any

from offcut._errors import Error
from offcut._paths import part

OK = 0
INVALID_ARGUMENT = 2


@functools.cache
def load() -> ctypes.CDLL:
    """The library, with the types of its functions. Touches neither PyTorch nor CUDA."""
    path = part("lib/liboffcut.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Error(f"{path} cannot be loaded: {error}") from error
    for name, result, arguments in (
        ("offcut_last_error", ctypes.c_char_p, []),
        ("offcut_version", ctypes.c_char_p, []),
        ("offcut_init", ctypes.c_int, []),
        ("offcut_options_json", ctypes.c_char_p, []),
        ("offcut_get_counters", ctypes.c_int, [ctypes.c_int, ctypes.c_void_p]),
        ("offcut_get_accounting", ctypes.c_int, [ctypes.c_int, ctypes.c_void_p]),
        ("offcut_recording_directory", ctypes.c_char_p, []),
        ("offcut_mark_step", None, [ctypes.c_uint64]),
        ("offcut_flush_recording", None, []),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def check(status: int, what: str) -> None:
    if status != OK:
        raise Error(f"{what}: {text(load().offcut_last_error())}")


def text(string: bytes | None) -> str:
    return (string or b"").decode("utf-8", "replace")


def version() -> str:
    """The version of the library that is loaded."""
    return text(load().offcut_version())


def options() -> list[dict[str, Any]]:
    """All options, with their value and where it came from."""
    listed: list[dict[str, Any]] = json.loads(text(load().offcut_options_json()))
    return listed


def recording_directory() -> str:
    """The directory that this process records into; "" if it does not record."""
    return text(load().offcut_recording_directory())


def flush() -> None:
    """Returns once everything recorded so far stands in chunks on disk.

    Never needed for safety: what was recorded survives the process in any case.
    """
    load().offcut_flush_recording()


_step_lock = threading.Lock()
_next_step = 0


def step(number: int | None = None) -> None:
    """Marks the beginning of a step (of a training loop, a request served) in the recording.

    Without a number, steps count from 0, or on from the last number given.
    """
    global _next_step  # noqa: PLW0603 - a process has one sequence of steps
    with _step_lock:
        if number is None:
            number = _next_step
        if number < 0 or number >= 1 << 64:
            raise ValueError(f"step {number}: a step's number is from 0 to 2^64-1")
        _next_step = number + 1
    load().offcut_mark_step(number)
