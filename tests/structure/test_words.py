"""What the sources must not say."""

import re
from collections.abc import Callable

Expect = Callable[[list[str]], None]

# Trackers move and close; the reason for a line stands beside the line.
TRACKER = re.compile(r"\b(issue|ticket|bug|PR|pull request)s?\s+#?\d+\b", re.IGNORECASE)
URL = re.compile(r"(?:https?:)?//[\w-]+(?:\.[\w-]+)+[^\s\"'`)<>]*")
# Names, not addresses that anybody would fetch.
NAMESPACES = (
    "http://www.w3.org/",
    "http://www.apache.org/licenses/",
    "https://www.apache.org/licenses/",
)


def tracker_references(tree: dict[str, str]) -> list[str]:
    return [
        f"{path}: {match.group(0)}"
        for path, text in tree.items()
        if not path.startswith("tests/structure/")
        for match in TRACKER.finditer(text)
    ]


def addresses(tree: dict[str, str]) -> list[str]:
    """Web addresses in the sources of the viewer, which works without a network."""
    return [
        f"{path}: {match.group(0)}"
        for path, text in tree.items()
        if path.startswith("visualizer/web/")
        for match in URL.finditer(text)
        if not match.group(0).startswith(NAMESPACES) and not is_funding(path, match.group(0))
    ]


def is_funding(path: str, url: str) -> bool:
    """The lock file repeats what packages say of their sponsors, and must not name a registry."""
    return path.endswith("package-lock.json") and "registry" not in url


def test_no_reference_to_a_tracker(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(tracker_references(tree))


def test_the_viewer_names_no_address(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(addresses(tree))


def test_references_and_addresses_are_found() -> None:
    assert tracker_references({"allocator/a.cc": "// see issue #12"})
    assert tracker_references({"allocator/a.cc": "// fixed by PR 7"})
    assert not tracker_references({"a.ts": 'const red = "#121212"; // 12 issues'})
    assert addresses({"visualizer/web/a.html": '<script src="//cdn.example.com/x.js">'})
    assert addresses({"visualizer/web/a.ts": 'fetch("https://example.com")'})
    assert addresses({"visualizer/web/package-lock.json": '"https://registry.example.com/a.tgz"'})
    assert not addresses({"visualizer/web/a.ts": '"http://www.w3.org/2000/svg" // a comment'})
