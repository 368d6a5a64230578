"""The sum at the end of a test run: it must not forget a failure."""

import json
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "count_tests.py"


def run(*folders: pathlib.Path) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, folders)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()[-1]


def gtest(folder: pathlib.Path, program: str, **tests: str) -> None:
    """A file of GoogleTest's, of tests that each passed, failed or skipped."""
    rows: list[dict[str, object]] = []
    for name, outcome in tests.items():
        row: dict[str, object] = {"name": name, "status": "RUN", "result": "COMPLETED"}
        if outcome == "failed":
            row["failures"] = [{"failure": "expected 1", "type": ""}]
        if outcome == "skipped":
            row["result"] = "SKIPPED"
        rows.append(row)
    report = {"testsuites": [{"name": "Suite", "testsuite": rows}]}
    (folder / f"{program}.json").write_text(json.dumps(report))


def ctest(folder: pathlib.Path, **programs: str) -> None:
    inside = {"passed": "", "failed": '<failure message=""/>'}
    cases = "".join(
        f'<testcase name="{name}" classname="{name}" status="run">{inside[outcome]}</testcase>'
        for name, outcome in programs.items()
    )
    (folder / "ctest.xml").write_text(f"<testsuite>{cases}</testsuite>")


def test_counts_single_tests_of_programs(tmp_path: pathlib.Path) -> None:
    gtest(tmp_path, "a_test", One="passed", Two="passed", Three="skipped")
    ctest(tmp_path, a_test="passed")
    assert run(tmp_path) == (0, "2 passed, 0 failed, 1 skipped")


def test_counts_a_failing_test_once(tmp_path: pathlib.Path) -> None:
    gtest(tmp_path, "a_test", One="passed", Two="failed")
    ctest(tmp_path, a_test="failed")
    (tmp_path / "failed").write_text("C++ tests\n")
    assert run(tmp_path) == (1, "1 passed, 1 failed")


def test_a_program_that_crashed_is_a_failure(tmp_path: pathlib.Path) -> None:
    ctest(tmp_path, a_test="failed", b_test="passed")
    assert run(tmp_path) == (1, "1 passed, 1 failed")


def test_a_program_that_crashed_after_its_last_test_is_a_failure(tmp_path: pathlib.Path) -> None:
    gtest(tmp_path, "a_test", One="passed")
    ctest(tmp_path, a_test="failed")
    assert run(tmp_path) == (1, "1 passed, 1 failed")


def test_a_step_that_failed_without_counting_is_a_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "failed").write_text("lint\n")
    assert run(tmp_path) == (1, "0 passed, 1 failed")


def test_counts_pytest_and_node(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pytest.xml").write_text(
        '<testsuites><testsuite><testcase name="a"/><testcase name="b"><error/></testcase>'
        '<testcase name="c"><skipped/></testcase></testsuite></testsuites>'
    )
    (tmp_path / "npm_test.log").write_text("ok 1 - x\n# tests 3\n# pass 3\n# fail 0\n# skipped 0\n")
    assert run(tmp_path) == (1, "4 passed, 1 failed, 1 skipped")


def test_adds_up_folders(tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        gtest(tmp_path / name, "a_test", One="passed")
    assert run(tmp_path / "one", tmp_path / "two") == (0, "2 passed, 0 failed")


def test_a_run_of_nothing_is_no_success(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path) == (1, "0 passed, 0 failed")
