"""A machine that sleeps, and a clock that is set, in every phase of a local run: nothing ends, nobody is blamed."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.unit.rl_operator.reconcile.life import Life
from tests.unit.rl_operator.status.builders import ready, result, running, terminated

from rl_operator.local.state.watched_clock import WatchedClock
from rl_operator.status.observed.observation import ObservedTrainer, format_time

DEADLINES = {"startDeadlineSeconds": 1200, "progressDeadlineSeconds": 3600, "activeDeadlineSeconds": 5000}
JUMPS = {
    "a sleep of 90 minutes": timedelta(minutes=90),
    "a sleep of two days": timedelta(days=2),
    "a clock set back by two days": timedelta(days=-2),
    "a clock set back by ten minutes": timedelta(minutes=-10),
}
JUMPED = pytest.mark.parametrize("jump", JUMPS.values(), ids=JUMPS)


class Laptop:
    """A run's supervisor on a machine whose clock moves by itself."""

    def __init__(self, life: Life) -> None:
        self.life, self.passed = life, 0.0
        self.clock = self._started()
        life.gaps = lambda: self.clock.gaps()  # noqa: PLW0108 -- of the clock at that time

    def _started(self) -> WatchedClock:
        path = self.life.store.layout.clock("default", "sorting")
        return WatchedClock(path, lambda: self.life.now, lambda: self.passed)

    async def works(self, seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            self.passed += 10
            self.life.now += timedelta(seconds=10)
            self.clock.look()
        await self.life.settle()

    async def jumps(self, by: timedelta) -> None:
        self.life.now += by
        self.clock.look()
        await self.life.settle()

    async def is_frozen(self, seconds: float) -> None:
        self.passed += seconds
        await self.jumps(timedelta(seconds=seconds))

    async def is_off(self, seconds: float) -> None:
        """The supervisor is gone that long, and the next one starts on a machine that has booted since."""
        self.life.now += timedelta(seconds=seconds)
        self.passed = 3.0
        self.clock = self._started()
        await self.life.settle()


@pytest.fixture
def laptop(life: Life) -> Laptop:
    return Laptop(life)


def trains(life: Life, step: int) -> None:
    """The trainer makes a step now."""
    life.attempt_metrics[life.pods[-1]["metadata"]["name"]] = ObservedTrainer(
        step=step, total_steps=40, last_step_at=format_time(life.now)
    )


@JUMPED
async def test_a_start_is_not_late(laptop: Laptop, life: Life, jump: timedelta) -> None:
    await life.start(**DEADLINES)
    life.attempt_metrics[life.pods[-1]["metadata"]["name"]] = ObservedTrainer()
    await life.report("Running", ready(), running(), running())
    await laptop.works(60)
    await laptop.jumps(jump)
    await laptop.works(1000)
    assert (life.status.phase, life.ends) == ("Starting", [])
    await laptop.works(800)  # a clock that goes back may add what was before
    assert life.waits_for.reason == "StartDeadlineExceeded"


@JUMPED
async def test_training_goes_on(laptop: Laptop, life: Life, jump: timedelta) -> None:
    await life.train(**DEADLINES)
    await laptop.works(60)
    trains(life, 1)
    await laptop.jumps(jump)
    await laptop.works(3000)
    assert (life.status.phase, life.ends) == ("Running", [])
    assert life.status.progress is not None
    assert life.status.progress.step == 1, "what is observed is written though time went back"
    trains(life, 2)
    await laptop.works(1000)
    assert life.status.phase == "Running"


@JUMPED
async def test_deadlines_go_on_where_they_were(laptop: Laptop, life: Life, jump: timedelta) -> None:
    """Else one that sleeps each night has none. A clock that goes back may add the time since the last step."""
    await life.train(**{**DEADLINES, "activeDeadlineSeconds": None})
    trains(life, 1)
    await laptop.works(1800)
    await laptop.jumps(jump)
    await laptop.works(1700)
    assert life.status.phase == "Running"
    await laptop.works(1900 if jump < timedelta(0) else 200)
    assert life.waits_for.reason == "ProgressDeadlineExceeded"


@pytest.mark.parametrize("away", ["is_frozen", "is_off"])
async def test_time_in_which_no_supervisor_ran_does_not_count(laptop: Laptop, life: Life, away: str) -> None:
    await life.train(**DEADLINES)
    await laptop.works(60)
    stands_still: Callable[[float], object] = getattr(laptop, away)
    await stands_still(86400)  # type: ignore[misc]
    await laptop.works(3000)
    assert (life.status.phase, life.ends) == ("Running", [])
    trains(life, 1)
    await laptop.works(2000)
    assert life.waits_for.reason == "ActiveDeadlineExceeded"


@JUMPED
async def test_a_pause_between_attempts_is_short(laptop: Laptop, life: Life, jump: timedelta) -> None:
    await life.train(**DEADLINES)
    await life.fail()
    await laptop.jumps(jump)
    await laptop.works(700)
    assert (life.status.phase, life.status.attempt, life.ends) == ("Starting", 2, ["TrainerFailed"])


@JUMPED
async def test_a_trainer_that_saves_is_not_lost(laptop: Laptop, life: Life, jump: timedelta) -> None:
    await life.train(**DEADLINES)
    await life.change(suspend=True)
    assert life.status.phase == "Stopping"
    await laptop.jumps(jump)
    assert (life.status.phase, life.ends) == ("Stopping", [])
    await life.report("Succeeded", terminated(0), terminated(0, result(outcome="stopped", stepsTrained=7)))
    assert (life.status.phase, life.ends) == ("Stopped", ["Stopped"])


@JUMPED
async def test_an_end_stays_what_it_is(laptop: Laptop, life: Life, jump: timedelta) -> None:
    await life.train(**DEADLINES)
    await life.succeed()
    await laptop.jumps(jump)
    assert (life.status.phase, life.ends) == ("Succeeded", ["Succeeded"])


@JUMPED
async def test_an_environment_that_ended_in_order_is_not_blamed(laptop: Laptop, life: Life, jump: timedelta) -> None:
    """The trainer reports a moment later that all steps are trained."""
    life.apply_own()
    life.edit(**DEADLINES)
    await life.settle()
    await life.report("Running", ready(), ready())
    life.play_environment("1-env-0-0", ready())
    await life.settle()
    life.play_environment("1-env-0-0", terminated(0, at=format_time(life.now)), "Succeeded")
    await laptop.jumps(jump)
    await laptop.works(30)
    assert life.status.environments is not None
    assert life.status.environments.failures == 0
