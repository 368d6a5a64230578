"""Adds up the results of all test programs, in one last line: `N passed, M failed[, K skipped]`.

usage: count_tests.py FOLDER...

Each folder is that of one step (scripts/test.sh) and may hold:
  *.json      what GoogleTest writes: the single tests of a program that ran to its end
  ctest.xml   what ctest writes: whether each program succeeded at all
  pytest.xml  what pytest writes
  npm_*.log   the output of Node's test runner, in TAP
  failed      the name of the step, if it failed; without a failing test that counts as one failure
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ET


@dataclasses.dataclass
class Count:
    passed: int = 0
    skipped: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.skipped += other.skipped
        self.failures += other.failures


def count_gtest(path: pathlib.Path) -> Count:
    count = Count()
    for suite in json.loads(path.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("failures"):
                count.failures.append(f"{path.stem}: {suite['name']}.{test['name']}")
            elif test["result"] == "COMPLETED":
                count.passed += 1
            else:  # skipped by itself, or DISABLED_
                count.skipped += 1
    return count


def count_junit(path: pathlib.Path) -> Count:
    count = Count()
    for test in ET.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in test}
        if kinds & {"failure", "error"}:
            count.failures.append(f"{test.get('classname')}: {test.get('name')}")
        elif "skipped" in kinds:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def count_ctest(path: pathlib.Path, programs: dict[str, Count]) -> Count:
    """Counts programs without results of their own as one test each; above all, crashes."""
    count = Count()
    whole = count_junit(path)
    failed = {failure.split(": ")[-1] for failure in whole.failures}
    for test in ET.parse(path).getroot().iter("testcase"):
        name = test.get("name", "")
        if name in failed and not (name in programs and programs[name].failures):
            count.failures.append(f"{name}: the program failed")
        elif name not in programs and test.get("status") == "run":
            count.passed += 1
    return count


def count_node(path: pathlib.Path) -> Count:
    """Reads the summary of Node's test runner, in TAP: lines like `# pass 12`."""
    sums = {"pass": 0, "fail": 0, "skipped": 0}
    for word, number in re.findall(
        r"^# (pass|fail|skipped) (\d+)$", path.read_text(), re.MULTILINE
    ):
        sums[word] += int(number)
    failures = [f"{path.stem}: see its output"] * sums["fail"]
    return Count(passed=sums["pass"], skipped=sums["skipped"], failures=failures)


def count_folder(folder: pathlib.Path) -> Count:
    programs = {path.stem: count_gtest(path) for path in sorted(folder.glob("*.json"))}
    counts = list(programs.values())
    if (path := folder / "ctest.xml").exists():
        counts.append(count_ctest(path, programs))
    if (path := folder / "pytest.xml").exists():
        counts.append(count_junit(path))
    counts += [count_node(path) for path in sorted(folder.glob("npm_*.log"))]
    total = Count()
    for count in counts:
        total.add(count)
    failed = folder / "failed"
    if failed.exists() and not total.failures:
        total.failures.append(f"{failed.read_text().strip()}: see its output")
    return total


def main() -> int:
    total = Count()
    for argument in sys.argv[1:]:
        total.add(count_folder(pathlib.Path(argument)))
    for failure in total.failures:
        print(f"FAILED {failure}")
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {len(total.failures)} failed{skipped}")
    nothing_ran = total == Count()  # a filter with a slip of the pen is no success
    return 1 if total.failures or nothing_ran else 0


if __name__ == "__main__":
    sys.exit(main())
