"""Many runs at once, an API server that refuses, cuts and repeats at random, and an operator that is killed at random.

`RL_CHAOS_SCHEDULES` and `RL_CHAOS_SEED` choose how many schedules and from which seed on: `make chaos` plays 30. By
default it is one, with a seed that is another one with each commit (tests/seeds.py). Which call a fault hits depends on
what the operator happens to do; the seed determines everything that the schedule itself decides.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.integration.cluster.lives import SCRIPTS, Life, play, sweep_away
from tests.integration.cluster.proxy import (
    Action,
    Answer,
    Cut,
    Delay,
    Event,
    Hooks,
    Kill,
    Pass,
    ProxiedCall,
    error_event,
    refusal,
)
from tests.integration.cluster.theatre import Theatre, Undisturbed
from tests.seeds import first_seed

Said = TypeVar("Said")

SCHEDULES = int(os.environ.get("RL_CHAOS_SCHEDULES", "1"))
FIRST_SEED = first_seed()

OF_EACH = 3
"""As many runs live each of the lives, all at once."""
KILLS = 4
FAULTY = 0.08
"""The share of calls about runs that go wrong before the API server hears of them, and again after it has answered."""
FAULTY_EVENTS = 0.03
CONVERGED_SECONDS = 120.0


@dataclass
class Schedule:
    """What goes wrong, and when. Its hooks run in the proxy's thread; `pid` is called at the moment of a kill."""

    seed: int
    pid: int | None = None
    done: Counter[str] = field(default_factory=Counter)
    _calls: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._kills = sorted(self._random.sample(range(5, 150), KILLS))

    def __str__(self) -> str:
        again = f"RL_CHAOS_SEED={self.seed} RL_CHAOS_SCHEDULES=1 python -m pytest {__name__.replace('.', '/')}.py"
        return f"seed {self.seed}: {dict(self.done)}; to repeat it: {again}"

    @property
    def hooks(self) -> Hooks:
        return Hooks(self._before, self._after, self._event)

    def _before(self, call: ProxiedCall) -> Action:
        if not _about_a_run(call):
            return Pass()
        self._calls += 1
        if self.pid and self._kills and self._calls >= self._kills[0]:
            self._kills.pop(0)
            return self._kill("before", self.pid)
        if self._random.random() >= FAULTY:
            return Pass()
        faults: Sequence[tuple[str, Action]] = (
            ("429", refusal(429, "TooManyRequests", **{"Retry-After": "1"})),
            ("500", refusal(500, "InternalError")),
            ("503", refusal(503, "ServiceUnavailable")),
            ("cut before", Cut()),
            ("delayed", Delay(0.3)),
            # There is no false conflict of names: creations are not refused like that.
            ("409", refusal(409, "Conflict") if call.method in ("PATCH", "PUT") else Delay(0.1)),
        )
        return self._noted(*self._random.choice(faults))

    def _after(self, call: ProxiedCall, _: Answer) -> Action:
        if not _about_a_run(call) or self._random.random() >= FAULTY:
            return Pass()
        if self.pid and self._random.random() < 0.2 and self.done["killed after"] < KILLS:
            return self._kill("after", self.pid)
        return self._noted("cut after", Cut())

    def _event(self, _: ProxiedCall, event: Event) -> Sequence[Event | Delay | Cut]:
        if self._random.random() >= FAULTY_EVENTS:
            return (event,)
        ways: Sequence[tuple[str, Sequence[Event | Delay | Cut]]] = (
            ("event repeated", (event, event)),
            ("event delayed", (Delay(0.3), event)),
            ("watch cut", (Cut(),)),
            ("watch expired", (error_event(410, "Expired"), Cut())),
        )
        return self._noted(*self._random.choice(ways))

    def _kill(self, moment: str, pid: int) -> Kill:
        self.pid = None
        return self._noted(f"killed {moment}", Kill(pid))

    def _noted(self, what: str, action: Said) -> Said:
        self.done[what] += 1
        return action


def _about_a_run(call: ProxiedCall) -> bool:
    return "/namespaces/life-" in call.path


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SCHEDULES))
@pytest.mark.nightly(
    "operator/src/rl_operator/reconcile", "operator/src/rl_operator/process", "operator/src/rl_operator/cluster"
)
def test_a_random_schedule(theatre: Theatre, undisturbed: Mapping[str, Undisturbed], seed: int) -> None:
    schedule = Schedule(seed, theatre.operator.pid)
    theatre.proxy.hooks = schedule.hooks
    lives = [Life(theatre.namespace(), name) for name in SCRIPTS for _ in range(OF_EACH)]
    for life in lives:
        life.hush()  # an Event is tried once: faults are worth the least there
    began_at = time.monotonic()

    def all_over() -> bool:
        if not theatre.operator.alive:
            assert theatre.operator.until_ended() == -signal.SIGKILL, theatre.operator.log[-6000:]
            theatre.operator.start()
            schedule.pid = theatre.operator.pid
        return all(life.over for life in lives)

    try:
        play(theatre.admin, lives, until=all_over, seconds=CONVERGED_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{schedule}\n{error}\n{theatre.operator.log[-6000:]}") from None
    finally:
        theatre.proxy.hooks = Hooks()
    print(f"\n{len(lives)} runs were over in {time.monotonic() - began_at:.1f} s; {schedule}")
    for life in lives:
        differences = undisturbed[life.name].outcome.differences(life.outcome())
        assert not differences, f"{schedule}\n{life}\n{differences}"
    assert schedule.done["killed before"] == KILLS, schedule
    sweep_away(theatre.admin, lives)
