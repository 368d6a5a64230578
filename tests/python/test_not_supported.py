"""What is not built yet says so, by the name that its users know; nothing is silently ignored."""

import pytest
from harness import run

REFUSED = {
    "ipc": ("x.untyped_storage()._share_cuda_()", "CUDA IPC"),
}


@pytest.mark.parametrize("feature", REFUSED)
def test_names_the_feature_and_the_program_goes_on(feature: str) -> None:
    statement, name = REFUSED[feature]
    done = run(f"""
        x = torch.empty(1000, device="cuda")
        try:
            exec({statement!r})
            report("nothing was raised")
        except NotImplementedError as error:
            report(str(error))
        y = torch.empty(1000, device="cuda")
    """)
    assert "Offcut does not support" in done.value
    assert name in done.value
