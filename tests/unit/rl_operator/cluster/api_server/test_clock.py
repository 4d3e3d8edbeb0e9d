"""A clock that follows the API server's but no jumps of either machine."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rl_operator.cluster.api_server.clock import PATIENCE_SECONDS, ServerClock

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOURS = timedelta(hours=5)


class Machine:
    """What the process can read of its machine: time that passes, and the time of day, which may be wrong."""

    def __init__(self, wall: datetime = NOON) -> None:
        self.passed = 100.0
        self.wall = wall

    def monotonic(self) -> float:
        return self.passed


def read(clock: ServerClock) -> datetime:
    return clock.now().replace(microsecond=0)


def heard(machine: Machine, clock: ServerClock, error: timedelta = timedelta(0)) -> datetime:
    """Receive an answer from a server whose clock is wrong by that much. Returns the clock's time afterwards."""
    right = NOON + timedelta(seconds=machine.passed - 100)
    clock.observe(format_datetime(right + error, usegmt=True))
    return read(clock) - (right - NOON)


def test_time_passes() -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    machine.passed += 90
    assert read(clock) == NOON + timedelta(seconds=90)


@pytest.mark.parametrize("wrong", [HOURS, -HOURS], ids=["fast", "slow"])
def test_a_machine_with_a_wrong_clock_follows_the_first_answer(wrong: timedelta) -> None:
    machine = Machine(NOON + wrong)
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    assert heard(machine, clock) == NOON


def test_a_later_jump_of_the_machines_clock_is_ignored() -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    assert heard(machine, clock) == NOON
    machine.wall += HOURS
    machine.passed += 1
    assert heard(machine, clock) == NOON


@pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["ahead", "back"])
def test_an_api_server_that_jumps_is_believed_if_it_stays_there(jump: timedelta) -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    heard(machine, clock)
    for _ in range(int(PATIENCE_SECONDS / 60)):
        machine.passed += 60
        assert heard(machine, clock, jump) == NOON
    machine.passed += 60
    assert heard(machine, clock, jump) == NOON + jump


def test_an_api_server_that_jumps_and_comes_back_is_never_believed() -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    heard(machine, clock)
    for second in range(0, 3 * int(PATIENCE_SECONDS), 60):
        machine.passed += 60
        assert heard(machine, clock, HOURS if second % 240 else timedelta(0)) == NOON


def test_two_api_servers_that_disagree_change_nothing() -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    for second in range(2 * int(PATIENCE_SECONDS)):
        machine.passed += 1
        assert heard(machine, clock, timedelta(seconds=30 * (second % 2))) == NOON


@pytest.mark.parametrize("text", ["", "soon", "Mon, 99 Jun 2026 12:00:00 GMT", "Mon, 01 Jun 99999999999 12:00:00 GMT"])
def test_an_invalid_date_changes_nothing(text: str) -> None:
    machine = Machine()
    clock = ServerClock(machine.monotonic, lambda: machine.wall)
    clock.observe(text)
    assert read(clock) == NOON
