"""Offcut: an instrumented CUDA caching allocator for PyTorch.

Before the first use of CUDA::

    import offcut
    offcut.enable()

With ``OFFCUT_RECORD=DIR`` in the environment every allocation is recorded below ``DIR``;
``python -m offcut --help`` lists the tools that read a recording.
"""

from offcut._errors import Error
from offcut._install import enable, enabled
from offcut._library import flush, options, recording_directory, step, version
from offcut._simulation import simulated_environment
from offcut._statistics import Gauge, accounting, counters

__version__ = "0.1.0"

__all__ = [
    "Error",
    "Gauge",
    "__version__",
    "accounting",
    "counters",
    "enable",
    "enabled",
    "flush",
    "options",
    "recording_directory",
    "simulated_environment",
    "step",
    "version",
]
