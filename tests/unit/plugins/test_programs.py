"""The guard against undeclared programs, in the run that it guards."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from tests.plugins import programs
from tests.plugins.programs import Guard, UndeclaredStartError


@pytest.fixture
def refused() -> Iterator[list[str]]:
    """What the guard refused this test; it does not fail the test afterwards."""
    yield programs._guard.refused
    programs._guard.refused.clear()


def test_a_start_not_declared_by_a_fixture_is_refused(refused: list[str]) -> None:
    for start in (lambda: subprocess.run(["true"], check=True), os.fork, lambda: os.system("true")):
        with pytest.raises(UndeclaredStartError, match=r"test_programs\.py::.* starts a program"):
            start()
    assert len(refused) == 3
    refused.clear()


@pytest.mark.process
def test_declared_programs_are_started(refused: list[str]) -> None:
    subprocess.run(["true"], check=True)
    assert refused == []


def test_a_fixture_that_starts_programs_marks_its_tests(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("process") is None
    marked = [item for item in request.session.items if "process" in getattr(item, "fixturenames", ())]
    assert all(item.get_closest_marker("process") and item.get_closest_marker("flaky") for item in marked)


@pytest.mark.parametrize("marker", ["apiserver", "cluster"])
def test_an_api_server_and_a_cluster_are_programs(request: pytest.FixtureRequest, marker: str) -> None:
    marked = [item for item in request.session.items if item.get_closest_marker(marker)]
    assert all(item.get_closest_marker("process") for item in marked)


def test_other_events_pass() -> None:
    guard = Guard()
    guard.undeclared = "a test"
    guard.audit("open", ("a file", "r", 0))
    assert guard.refused == []
