"""The tables at the end of a test run."""

import pytest
from tests.plugins.summary import (
    FAILURE_LINES,
    group_of,
    left_out_sentence,
    rerun_lines,
    skip_table,
    tier_of,
    tier_table,
    time_table,
)


def report(nodeid: str, seconds: float, when: str = "call", longrepr: object = None) -> pytest.TestReport:
    outcome = "skipped" if longrepr else "passed"
    return pytest.TestReport(
        nodeid, ("file", 1, "name"), {}, outcome, longrepr, when, duration=seconds,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_group_is_a_folder() -> None:
    assert group_of("tests/unit/rl_operator/status/test_x.py::test_y[a/b]") == "tests/unit/rl_operator/status"
    assert group_of("tests/unit/tinker_atropos/environments/runner/test_x.py::test_y") == (
        "tests/unit/tinker_atropos/environments"
    )


def test_seconds_cover_all_phases_and_tests_count_once() -> None:
    rows = time_table(
        [
            report("tests/a/test_x.py::test_1", 1.0, "setup"),
            report("tests/a/test_x.py::test_1", 2.0),
            report("tests/b/test_y.py::test_2", 9.0),
        ]
    )
    assert [row.split() for row in rows] == [
        ["9.0", "75.0%", "1", "tests", "tests/b"],
        ["3.0", "25.0%", "1", "tests", "tests/a"],
        ["12.0", "100.0%", "2", "tests"],
    ]
    assert time_table([]) == []


@pytest.mark.parametrize(
    ("markers", "tier"),
    [
        ([], "commit"),
        (["process", "smoke"], "commit"),
        (["process", "apiserver"], "merge"),
        (["process", "cluster"], "cluster"),
        (["nightly", "process", "cluster"], "nightly"),
    ],
)
def test_a_test_has_one_tier(markers: list[str], tier: str) -> None:
    assert tier_of(markers) == tier


def test_each_tier_has_its_time() -> None:
    reports = [report("t.py::a", 1.0), report("t.py::b", 2.0, "setup"), report("t.py::b", 3.0)]
    for each, tier in zip(reports, ("commit", "nightly", "nightly"), strict=True):
        each.tier = tier  # type: ignore[attr-defined]
    assert [row.split() for row in tier_table(reports)] == [
        ["1.0", "1", "tests", "of", "tier", "commit"],
        ["5.0", "1", "tests", "of", "tier", "nightly"],
    ]


def test_skips_are_summed_by_reason() -> None:
    skipped = [report(f"t.py::{n}", 0, longrepr=("t.py", n, f"Skipped: needs {what}")) for n, what in enumerate("aba")]
    assert [row.split() for row in skip_table(skipped)] == [["2", "needs", "a"], ["1", "needs", "b"]]


def test_a_test_that_was_run_twice_says_how_it_failed() -> None:
    text = "\n".join(map(str, range(FAILURE_LINES + 5)))
    assert rerun_lines([report("t.py::b", 1, longrepr="short"), report("t.py::a", 1, longrepr=text)]) == [
        "t.py::a", *map(str, range(5, FAILURE_LINES + 5)), "t.py::b", "short",
    ]  # fmt: skip


def test_left_out_tests_can_be_run() -> None:
    assert "7 tests" in left_out_sentence(7, "not process or smoke")
    assert "make test-all" in left_out_sentence(7, "not process or smoke")
