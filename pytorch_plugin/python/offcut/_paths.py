"""Where the parts of the package are: the same in the wheel and in the build tree."""

from pathlib import Path

from offcut._errors import Error

# Not resolved: in the build tree this file is a link into the sources, and the libraries are beside
# the link.
_PACKAGE = Path(__file__).absolute().parent


def part(relative: str) -> Path:
    """The path of a file of this package; Error if it was not built."""
    path = _PACKAGE / relative
    if not path.exists():
        raise Error(
            f"{path} is missing: this installation of Offcut is incomplete. In a checkout, build "
            "it (./dev build) and put build/release/package on PYTHONPATH"
        )
    return path
