"""The simulated GPU: real PyTorch on a machine without one."""

from __future__ import annotations

import os

from offcut._paths import part


def simulated_environment(
    card: str = "H200",
    *,
    memory: str | None = None,
    devices: int | None = None,
    lag: str | None = None,
) -> dict[str, str]:
    """The environment in which a program runs on a simulated GPU, with kernels that do nothing.

    Every allocation and free of the program is real; the values that it computes are not::

        subprocess.run([sys.executable, "train.py"], env=offcut.simulated_environment("H200"))

    ``memory`` ("80GiB") overrides the card's; ``lag`` ("5ms") is how far the device runs behind the
    host. Nothing of the environment of this process is lost.
    """
    wanted = {"memory": memory, "devices": devices, "lag": lag}
    settings = [card, *(f"{key}={value}" for key, value in wanted.items() if value is not None)]
    preload = [str(part("lib/liboffcut_cudasim.so")), *os.environ.get("LD_PRELOAD", "").split()]
    return {**os.environ, "LD_PRELOAD": " ".join(preload), "OFFCUT_SIM": ",".join(settings)}
