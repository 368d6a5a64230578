"""Arrows run one way: who may include whom. The table is the design; a new arrow changes it."""

import posixpath
import re
from collections.abc import Callable

Expect = Callable[[list[str]], None]

# Folder -> what it may include besides itself. The longest folder that holds a file decides.
#   base <- config, events, driver, policy <- core, sim <- (trace, sinks) <- offcut.h
# where trace and sinks, though they come late, observe events only.
MAY_INCLUDE = {
    "allocator/base": (),
    "allocator/config": ("allocator/base",),
    "allocator/events": ("allocator/base",),
    "allocator/driver": ("allocator/base",),
    "allocator/policy": ("allocator/base",),
    "allocator/core": (
        "allocator/base",
        "allocator/config",
        "allocator/events",
        "allocator/driver",
        "allocator/policy",
    ),
    "allocator/sim": ("allocator/base", "allocator/config", "allocator/driver"),
    "allocator/trace": ("allocator/base", "allocator/events"),
    "allocator/sinks": ("allocator/base", "allocator/events"),
    # What stands in allocator/ itself is liboffcut.so: it ties all but the simulator together.
    "allocator": (
        "allocator/base",
        "allocator/config",
        "allocator/events",
        "allocator/driver",
        "allocator/policy",
        "allocator/core",
        "allocator/trace",
        "allocator/sinks",
    ),
    "allocator/replay": (
        "allocator/base",
        "allocator/config",
        "allocator/events",
        "allocator/driver",
        "allocator/policy",
        "allocator/core",
        "allocator/sim",
        "allocator/trace",
    ),
    "pytorch_plugin": ("allocator/offcut.h",),
    "visualizer/cli": (
        "allocator/base",
        "allocator/config",
        "allocator/driver/driver.h",  # the names of the calls that events tell of
        "allocator/events",
        "allocator/sim",
        "allocator/trace",
        "allocator/replay",
    ),
}

# Headers that only some files may know: prefix of the header -> prefixes of the files.
ONLY_IN = {
    "cuda": (
        "allocator/driver/cuda_driver.cc",
        "allocator/sim/cuda_abi/",
        "pytorch_plugin/",
        "bench/peers/",
    ),
    "nvtx": ("allocator/sinks/",),
    "torch/": ("pytorch_plugin/",),
    "c10/": ("pytorch_plugin/", "bench/peers/"),
    "ATen/": ("pytorch_plugin/",),
}

CXX = (".h", ".cc", ".cu", ".def")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path: str) -> str | None:
    """The folder of the table that `path` belongs to."""
    folder = posixpath.dirname(path)
    while folder and folder not in MAY_INCLUDE:
        folder = posixpath.dirname(folder)
    return folder or None


def wrong_includes(tree: dict[str, str]) -> list[str]:
    wrong = []
    for path, text in tree.items():
        folder = folder_of(path)
        if folder is None or not path.endswith(CXX):
            continue  # tests and benchmarks look everywhere
        for _, header in INCLUDE.findall(text):
            inside = folder_of(header)
            if inside is not None and inside != folder:
                allowed = MAY_INCLUDE[folder]
                if inside not in allowed and header not in allowed:
                    wrong.append(f"{path} includes {header}: {folder} may not know {inside}")
            for prefix, files in ONLY_IN.items():
                if header.startswith(prefix) and not path.startswith(files):
                    wrong.append(f"{path} includes {header}: only {', '.join(files)} may")
    return wrong


def unknown_headers(tree: dict[str, str]) -> list[str]:
    """Includes by a path that is not written from the root, which the table could not judge."""
    wrong = []
    for path, text in tree.items():
        if folder_of(path) is None or not path.endswith(CXX):
            continue
        for bracket, header in INCLUDE.findall(text):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), header))
            if bracket == '"' and header not in tree and beside in tree:
                wrong.append(f"{path} includes {header}: write {beside}")
    return wrong


def state_in_policy(tree: dict[str, str]) -> list[str]:
    """Policies are functions from numbers to a decision."""
    state = re.compile(r"\b(mutable|thread_local|std::atomic|absl::Mutex)\b|\bstatic (?!constexpr)")
    return [
        f"{path}: {match.group(0).strip()} means state, and policy holds none"
        for path, text in tree.items()
        if path.startswith("allocator/policy/") and path.endswith(CXX)
        for match in state.finditer(re.sub(r"//.*", "", text))
    ]


def outside_the_build(tree: dict[str, str]) -> list[str]:
    """A source that no CMakeLists.txt names is dead, and a test above all."""
    named = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), word))
        for path, text in tree.items()
        if path.endswith("CMakeLists.txt")
        for word in re.findall(r"[\w./+-]+\.(?:cc|cu)\b", text)
    }
    return [
        f"{path} is in no CMakeLists.txt"
        for path in tree
        if path.startswith(("allocator/", "visualizer/", "pytorch_plugin/", "tests/", "bench/"))
        and path.endswith((".cc", ".cu"))
        and path not in named
    ]


def test_includes_follow_the_arrows(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(wrong_includes(tree))


def test_includes_are_written_from_the_root(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(unknown_headers(tree))


def test_policy_holds_no_state(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(state_in_policy(tree))


def test_every_source_is_built(tree: dict[str, str], expect_none: Expect) -> None:
    expect_none(outside_the_build(tree))


def test_every_folder_of_the_allocator_is_in_the_table(tree: dict[str, str]) -> None:
    folders = {"/".join(path.split("/")[:2]) for path in tree if path.count("/") > 1}
    assert {f for f in folders if f.startswith("allocator/")} <= set(MAY_INCLUDE)


# The checkers themselves.


def test_an_arrow_against_the_direction_is_found() -> None:
    assert wrong_includes({"allocator/core/a.cc": '#include "allocator/trace/writer.h"\n'})
    assert wrong_includes({"allocator/core/a.cc": '#  include "allocator/sim/sim_driver.h"\n'})
    assert wrong_includes({"allocator/policy/a.h": '#include "allocator/events/event.h"\n'})
    assert wrong_includes({"allocator/sim/a.h": '#include "allocator/core/block.h"\n'})
    assert wrong_includes({"pytorch_plugin/shim/a.cc": '#include "allocator/base/units.h"\n'})
    assert not wrong_includes({"pytorch_plugin/shim/a.cc": '#include "allocator/offcut.h"\n'})
    assert not wrong_includes({"allocator/core/a.cc": '#include "allocator/core/b/c.h"\n'})
    assert not wrong_includes({"tests/core/a.cc": '#include "allocator/sim/sim_driver.h"\n'})


def test_cuda_outside_its_two_places_is_found() -> None:
    assert wrong_includes({"allocator/core/a.cc": "#include <cuda.h>\n"})
    assert wrong_includes({"allocator/driver/faulty_driver.cc": "#include <cuda_runtime_api.h>\n"})
    assert not wrong_includes({"allocator/driver/cuda_driver.cc": "#include <cuda.h>\n"})
    assert not wrong_includes({"allocator/sim/cuda_abi/runtime.cc": "#include <cuda.h>\n"})


def test_an_include_of_a_neighbour_by_its_bare_name_is_found() -> None:
    tree = {"allocator/core/a.cc": '#include "b.h"\n', "allocator/core/b.h": ""}
    assert unknown_headers(tree) == ["allocator/core/a.cc includes b.h: write allocator/core/b.h"]


def test_state_in_a_policy_is_found() -> None:
    assert state_in_policy({"allocator/policy/a.cc": "static int calls = 0;\n"})
    assert state_in_policy({"allocator/policy/a.h": "mutable bool seen_;\n"})
    assert not state_in_policy({"allocator/policy/a.h": "static constexpr int kMost = 4;\n"})


def test_a_test_outside_the_build_is_found() -> None:
    tree = {
        "tests/core/CMakeLists.txt": "offcut_test(NAME a_test SRCS a_test.cc)",
        "tests/core/a_test.cc": "",
        "tests/core/b_test.cc": "",
    }
    assert outside_the_build(tree) == ["tests/core/b_test.cc is in no CMakeLists.txt"]
