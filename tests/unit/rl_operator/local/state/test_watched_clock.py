"""What a supervisor's clock takes for a gap, and that its successor knows."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rl_operator.local.state.watched_clock import ABSENT_SECONDS, NOTED_SECONDS, WatchedClock

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "run.clock"
        self.wall, self.passed = NOON, 100.0

    def clock(self) -> WatchedClock:
        return WatchedClock(self.path, lambda: self.wall, lambda: self.passed)

    def move(self, clock: WatchedClock, wall: float, passed: float) -> int:
        """Returns how many gaps there are then."""
        self.wall += timedelta(seconds=wall)
        self.passed += passed
        clock.look()
        return len(clock.gaps().gaps)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("wall", "passed", "gaps"),
    [
        pytest.param(0.2, 0.2, 0, id="a look"),
        pytest.param(9.0, 9.0, 0, id="a busy machine"),
        pytest.param(1.0, 0.2, 0, id="a clock that is slewed"),
        pytest.param(5400.0, 0.2, 1, id="a machine that slept"),
        pytest.param(-172800.0, 0.2, 1, id="a clock set back"),
        pytest.param(125.0, 125.0, 1, id="a supervisor that was stopped"),
    ],
)
def test_what_a_gap_is(machine: Machine, wall: float, passed: float, gaps: int) -> None:
    clock = machine.clock()
    assert machine.move(clock, wall, passed) == gaps
    assert machine.move(clock, 0.2, 0.2) == gaps, "it is one"
    assert clock.now() == machine.wall


@pytest.mark.parametrize("away", [ABSENT_SECONDS + NOTED_SECONDS, 86400.0, -86400.0])
def test_a_successor_knows_what_was_before_and_that_nobody_looked_since(machine: Machine, away: float) -> None:
    first = machine.clock()
    machine.move(first, 5400, 0.2)
    machine.wall += timedelta(seconds=away)
    machine.passed = 1.0
    slept, gone = machine.clock().gaps().gaps
    assert (slept.began, slept.ended) == (NOON, NOON + timedelta(seconds=5400))
    assert (gone.began, gone.ended) == (slept.ended, machine.wall)


def test_a_successor_that_follows_at_once_finds_no_gap(machine: Machine) -> None:
    first = machine.clock()
    for _ in range(100):
        machine.move(first, 1, 1)
    machine.passed = 1.0
    assert not machine.clock().gaps().gaps


def test_a_line_that_was_cut_off_is_passed_over(machine: Machine) -> None:
    machine.move(machine.clock(), 5400, 0.2)
    with machine.path.open("a") as file:
        file.write("\n[1748779200.0, 17487")
    os.utime(machine.path, times=(machine.wall.timestamp(),) * 2)
    again = machine.clock()
    assert len(again.gaps().gaps) == 1
    machine.move(again, 60, 0.2)
    assert len(machine.clock().gaps().gaps) == 2


def test_what_cannot_be_written_is_written_later(machine: Machine) -> None:
    machine.path.mkdir()  # whatever the reason
    os.utime(machine.path, times=(machine.wall.timestamp(),) * 2)
    clock = machine.clock()
    assert machine.move(clock, 5400, 0.2) == 1
    machine.path.rmdir()
    machine.move(clock, 0.2, 0.2)
    assert len(machine.clock().gaps().gaps) == 1
