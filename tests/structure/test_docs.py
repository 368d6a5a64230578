"""Docs that name files rot unless a machine looks: every name in every page has to exist."""

import pathlib
import posixpath
import re
from collections.abc import Callable

import pytest

Expect = Callable[[list[str]], None]

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
VERB = re.compile(r"\./dev ([a-z-]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def names_in(text: str, top: set[str]) -> list[str]:
    """What a page names: targets of links, and `code` that begins like a path of this tree."""
    text = FENCE.sub("", text)
    names = [link for link in LINK.findall(text) if "://" not in link]
    names += [
        code
        for code in CODE.findall(text)
        if PATH.fullmatch(code) and "/" in code and code.split("/")[0] in top
    ]
    return names


def missing_names(page: str, text: str, root: pathlib.Path) -> list[str]:
    top = {path.name for path in root.iterdir()} - {"build"}
    return [
        f"{page} names {name}, which does not exist"
        for name in names_in(text, top)
        if not any(root.glob(name.rstrip("/")))
        and not any(root.glob(posixpath.normpath(posixpath.join(posixpath.dirname(page), name))))
    ]


def unknown_verbs(page: str, text: str, dev: str) -> list[str]:
    known = set(re.findall(r"^  ([a-z-]+) ", dev, re.MULTILINE))
    return [
        f"{page} names ./dev {verb}, which does not exist"
        for verb in VERB.findall(text)
        if verb not in known
    ]


def pages(tree: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in tree.items() if path.endswith(".md")}


def test_every_file_named_in_a_page_exists(
    tree: dict[str, str], root: pathlib.Path, expect_none: Expect
) -> None:
    expect_none([m for page, text in pages(tree).items() for m in missing_names(page, text, root)])


def test_every_verb_named_in_a_page_exists(tree: dict[str, str], expect_none: Expect) -> None:
    found = [
        m for page, text in pages(tree).items() for m in unknown_verbs(page, text, tree["dev"])
    ]
    expect_none(found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("see `allocator/core/nowhere.h`", True),
        ("see [the page](allocator/nowhere.md)", True),
        ("see [the page](CMakeLists.txt#top)", False),
        ("see `CMakeLists.txt`, `scripts/*.sh` and `cmake/`", False),
        ("see [elsewhere](https://example.org/nowhere)", False),
        ("not a path: `live/reserved`", False),
    ],
)
def test_a_name_of_nothing_is_found(text: str, wrong: bool, root: pathlib.Path) -> None:
    assert bool(missing_names("README.md", text, root)) == wrong


def test_a_verb_that_does_not_exist_is_found(tree: dict[str, str]) -> None:
    assert unknown_verbs("README.md", "run `./dev fly`", tree["dev"])
    assert not unknown_verbs("README.md", "run `./dev gpu-test`", tree["dev"])
