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
    program = ROOT / "bench" / "training" / "compare.py"
    subprocess.run(
        [
            *(sys.executable, program, "--out", out, "--workloads", "llama"),
            *("--steps", "12", "--rounds", "2"),
        ],
        check=True,
    )
    found = json.loads(out.read_text())["workloads"]["llama"]
    comparison = found["comparison"]
    print(json.dumps(comparison, indent=1))
    assert comparison["native_runs_agree_to_the_bit"], "this machine cannot tell"
    for name in ("offcut", "offcut_capped"):
        different = comparison[name]["first_different_step"]
        assert comparison[name]["losses_equal_native_to_the_bit"], f"{name}: step {different}"
    native, offcut = found["runs"]["native"][0], found["runs"]["offcut"][0]
    assert offcut["allocations"] == native["allocations"]
