"""The tree, as the structural tests read it."""

import pathlib
import subprocess
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    return ROOT


@pytest.fixture(scope="session")
def tree() -> dict[str, str]:
    """Path to text, for every text file that is tracked, or new and not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    texts = {}
    for name in sorted(filter(None, listing.split("\0"))):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a recording, or another binary file
    return texts


@pytest.fixture
def expect_none() -> Callable[[list[str]], None]:
    """Fails with one line per finding, and nothing else to read."""

    def fail_on(findings: list[str]) -> None:
        if findings:
            pytest.fail("\n".join(findings), pytrace=False)

    return fail_on
