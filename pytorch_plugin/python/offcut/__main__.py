"""``python -m offcut`` and the console script ``offcut``: the program of that name."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from offcut._errors import Error
from offcut._paths import part


def main() -> NoReturn:
    try:
        program = str(part("bin/offcut"))
    except Error as error:
        sys.exit(f"offcut: {error}")
    os.execv(program, ["offcut", *sys.argv[1:]])  # noqa: S606 - our own program, without a shell


if __name__ == "__main__":
    main()
