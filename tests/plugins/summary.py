"""What a test run reports at its end: where the time went, what was skipped, run twice, and left out."""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

LEFT_OUT = pytest.StashKey[int]()
MOST_GROUPS = 30
FAILURE_LINES = 40
"""The end of a failure holds the assertion and where it stands."""


def group_of(nodeid: str) -> str:
    """The folder of a test, at most four levels deep: `tests/unit/rl_operator/status`."""
    return "/".join(nodeid.partition("::")[0].split("/")[:-1][:4])


TIERS = {"nightly": "nightly", "cluster": "cluster", "smoke": "commit", "process": "merge"}
"""By marker: the first that a test has counts."""


def tier_of(markers: Iterable[str]) -> str:
    found = set(markers)
    return next((tier for marker, tier in TIERS.items() if marker in found), "commit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.tier = tier_of(mark.name for mark in item.iter_markers())  # type: ignore[attr-defined]  # workers send it
    return report


# --- what was left out: workers know it, the controller tells it ----------------------------------------------------
def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    if items:
        items[0].config.stash[LEFT_OUT] += len(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    left_out = getattr(node, "workeroutput", {}).get("left_out", 0)
    config.stash[LEFT_OUT] = max(config.stash[LEFT_OUT], left_out)  # each worker leaves out the same tests


# --- the sections ----------------------------------------------------------------------------------------------------
def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    stats = terminalreporter.stats
    # Those without an outcome are setups and teardowns: where programs are started and ended.
    reports = [r for kind in ("", "passed", "failed", "error", "rerun") for r in stats.get(kind, ())]
    _section(terminalreporter, "time per group, in seconds of one worker", time_table(reports))
    _section(terminalreporter, "time per tier, in seconds of one worker", tier_table(reports))
    if config.getoption("cov_source", None) and Path(".coverage").exists():
        _section(terminalreporter, "lines covered, by package", coverage_table())
    _section(terminalreporter, "skipped, by reason", skip_table(stats.get("skipped", ())))
    _section(terminalreporter, "run twice, and how the first time ended", rerun_lines(stats.get("rerun", ())))
    if left_out := config.stash[LEFT_OUT]:
        _section(terminalreporter, "left out", [left_out_sentence(left_out, config.getoption("-m"))])


def _section(reporter: TerminalReporter, title: str, lines: Sequence[str]) -> None:
    if lines:
        reporter.section(title)
        for line in lines:
            reporter.write_line(line)


def time_table(reports: Iterable[pytest.TestReport]) -> Sequence[str]:
    """Tests, seconds, and the share of all seconds, the slowest groups first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        group = group_of(report.nodeid)
        seconds[group] += getattr(report, "duration", 0.0)
        tests[group].add(report.nodeid)
    whole = sum(seconds.values())
    slowest = sorted(seconds, key=lambda group: -seconds[group])[:MOST_GROUPS]
    rows = [f"{seconds[g]:8.1f} {seconds[g] / whole:6.1%} {len(tests[g]):6} tests  {g}" for g in slowest if whole]
    return [*rows, f"{whole:8.1f} {1:6.1%} {sum(map(len, tests.values())):6} tests"] if rows else []


def tier_table(reports: Iterable[pytest.TestReport]) -> Sequence[str]:
    """Seconds and tests of each tier, as CONTRIBUTING.md names them."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        tier = getattr(report, "tier", "commit")
        seconds[tier] += getattr(report, "duration", 0.0)
        tests[tier].add(report.nodeid)
    return [f"{seconds[tier]:8.1f} {len(tests[tier]):6} tests of tier {tier}" for tier in sorted(tests)]


def coverage_table() -> Sequence[str]:
    """Of what pytest-cov has just written: shares of lines, the least covered packages first."""
    from coverage import Coverage  # slow, and only where it was asked for

    measured = Coverage()
    measured.load()
    lines: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for file in measured.get_data().measured_files():
        _, statements, _, missed, _ = measured.analysis2(file)
        package = ".".join(Path(file).parts[Path(file).parts.index("src") + 1 : -1][:2])
        lines[package] += len(statements)
        missing[package] += len(missed)
    packages = sorted(filter(lines.get, lines), key=lambda package: -missing[package] / lines[package])
    rows = [_coverage_row(lines[package], missing[package], package) for package in packages]
    return [*rows, _coverage_row(lines.total(), missing.total(), "all of it")] if rows else []


def _coverage_row(lines: int, missing: int, name: str) -> str:
    return f"{1 - missing / lines:8.1%} of {lines:6} lines  {name}"


def skip_table(reports: Iterable[pytest.TestReport]) -> Sequence[str]:
    reasons = Counter(_reason(report) for report in reports)
    return [f"{count:6} {reason}" for reason, count in reasons.most_common()]


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return found.removeprefix("Skipped: ")


def rerun_lines(reports: Iterable[pytest.TestReport]) -> Sequence[str]:
    """A second try that passes would hide why the first one failed, and that may be a rare defect."""
    tried = sorted(reports, key=lambda report: report.nodeid)
    return [line for report in tried for line in (report.nodeid, *report.longreprtext.splitlines()[-FAILURE_LINES:])]


def left_out_sentence(count: int, expression: str) -> str:
    """What `make test` leaves out starts programs or API servers, or needs a cluster."""
    selected = f" (-m {expression!r})" if expression else ""
    return f"{count} tests were not selected{selected}. All tests: make test-all"
