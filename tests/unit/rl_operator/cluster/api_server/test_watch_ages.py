"""A watch is as old as the last bytes of its stream; an unreachable API server makes none of them stale."""

from dataclasses import dataclass

import pytest

from rl_operator.cluster.api_server.request_guard import WatchAges

PATIENCE = 100.0


@dataclass
class Body:
    """A stream that has received this much so far."""

    total_bytes: int = 0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch_clock() -> Clock:
    return Clock()


@pytest.fixture
def ages(watch_clock: Clock) -> WatchAges:
    watched = WatchAges(PATIENCE, watch_clock)
    watched.expect(["pods", "services"])
    return watched


def pass_time(ages: WatchAges, clock: Clock, seconds: float, *busy: Body) -> None:
    """The API server answers some call or other every ten seconds, and these streams bring bookmarks."""
    for _ in range(int(seconds / 10)):
        clock.now += 10
        ages.answered()
        for body in busy:
            body.total_bytes += 50
        ages.silent_seconds()


def test_a_watch_with_bookmarks_is_fresh(ages: WatchAges, watch_clock: Clock) -> None:
    pods, services = Body(), Body()
    ages.opened("pods", pods)
    ages.opened("services", services)
    pass_time(ages, watch_clock, 1000, pods, services)
    watch_clock.now += 7
    assert ages.silent_seconds() == {"pods": 7, "services": 7}
    assert ages.stale() == {}


def test_an_open_but_silent_stream_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    pods, services = Body(), Body()
    ages.opened("pods", pods)
    ages.opened("services", services)
    pass_time(ages, watch_clock, PATIENCE, services)
    assert ages.stale() == {}
    pass_time(ages, watch_clock, 10, services)
    assert ages.stale() == {"pods": PATIENCE + 10}


def test_a_watch_that_keeps_reopening_in_vain_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    services = Body()
    ages.opened("services", services)
    for _ in range(15):
        ages.opened("pods", Body())
        pass_time(ages, watch_clock, 10, services)
    assert list(ages.stale()) == ["pods"]


def test_a_watch_that_was_never_opened_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    services = Body()
    ages.opened("services", services)
    pass_time(ages, watch_clock, PATIENCE + 10, services)
    assert list(ages.stale()) == ["pods"]


def test_the_last_streams_events_count_when_the_next_is_opened(ages: WatchAges, watch_clock: Clock) -> None:
    first = Body()
    ages.opened("pods", first)
    watch_clock.now += 50
    first.total_bytes += 50
    ages.opened("pods", Body())
    assert ages.silent_seconds()["pods"] == 0


def test_an_unreachable_or_just_returned_api_server_makes_nothing_stale(ages: WatchAges, watch_clock: Clock) -> None:
    body = Body()
    ages.opened("pods", body)
    pass_time(ages, watch_clock, 10, body)
    watch_clock.now += 10 * PATIENCE
    assert ages.stale() == {}, "it does not answer"
    ages.answered()
    pass_time(ages, watch_clock, PATIENCE - 10)
    assert ages.stale() == {}, "watches are still being opened"
    pass_time(ages, watch_clock, 20)
    assert list(ages.stale()) == ["pods", "services"]


def test_before_the_first_answer_nothing_is_stale(watch_clock: Clock) -> None:
    ages = WatchAges(PATIENCE, watch_clock)
    ages.expect(["pods"])
    watch_clock.now += 10 * PATIENCE
    assert ages.stale() == {}
