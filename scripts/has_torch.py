"""Exits with 0 if this interpreter has a PyTorch that the plugin is written for. Does not import it: that takes seconds."""

import importlib.util
import pathlib
import sys

if sys.version_info < (3, 10):
    sys.exit(1)
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit(1)
facts: dict[str, object] = {}
exec((pathlib.Path(spec.origin).parent / "version.py").read_text(), facts)
sys.exit(0 if str(facts["__version__"]).startswith("2.11.") and facts["cuda"] else 1)
