"""Real training on real hardware, under native and under Offcut."""

import json
import os
import subprocess
import sys
from pathlib import Path

from harness import ROOT

RESULTS = Path(os.environ.get("OFFCUT_BENCH_RESULTS", ROOT / "bench" / "results"))


def test_losses_are_natives_to_the_bit() -> None:
    out = RESULTS / "training_compare.json"
    out.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, ROOT / "bench" / "training" / "compare.py", "--out", out], check=True
    )
    result = json.loads(out.read_text())
    comparison = result["comparison"]
    print(json.dumps(comparison, indent=1))
    assert comparison["native_runs_agree_to_the_bit"], "this machine cannot tell"
    for name, offcut in comparison["offcut"].items():
        assert offcut["losses_equal_to_the_bit"], f"{name}: step {offcut['first_different_step']}"
    native, offcut = result["runs"]["native"][0], result["runs"]["offcut"][0]
    assert offcut["allocations"] == native["allocations"]
    assert offcut["losses"][-1] < offcut["losses"][0], "the model learns"
