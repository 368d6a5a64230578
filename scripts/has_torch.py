"""Exits with 0 if this interpreter has a PyTorch that the plugin is written for.

It does not import PyTorch, which takes seconds.
"""

import importlib.util
import pathlib
import runpy
import sys

if sys.version_info < (3, 10):  # noqa: UP036 - any interpreter may be asked
    sys.exit(1)
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(1)
version = runpy.run_path(str(pathlib.Path(spec.origin).parent / "version.py"))
sys.exit(0 if str(version["__version__"]).startswith("2.11.") and version["cuda"] else 1)
