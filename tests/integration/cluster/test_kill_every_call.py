"""If the operator is killed at any call to the API server, the end of a run is the same.

The lives are played once undisturbed, which gives the calls and the ends. Then each call is a point where the operator
can be killed, once before the API server receives it and once before the operator receives the answer. There is one
life per point, and its call is held there; when all of a group are held, one SIGKILL hits each of them at its point. Of
a run with an own environment only the calls that create and delete objects are points.

A third of the points is played, drawn by the seed (tests/seeds.py: another one with each commit), and among them every
kind of call. `RL_KILL_POINTS=all` plays all of them, as `make chaos` does.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from tests.integration.cluster.kill_points import Moment, Point, Stab, Traps, in_groups, objects, sample, stabs
from tests.integration.cluster.lives import SAMPLED_SCRIPTS, Life, play, sweep_away
from tests.integration.cluster.proxy import Hooks
from tests.integration.cluster.theatre import Theatre, Undisturbed
from tests.seeds import seed_text

SHARE = 1.0 if os.environ.get("RL_KILL_POINTS") == "all" else 1 / 3
AGAIN = f"the same points again: RL_SEED={seed_text()} python -m pytest {__name__.replace('.', '/')}.py"
AT_ONCE = 10
"""As many calls are held at most: the operator has 20 connections, and eight of them are watches."""
LATE_SECONDS = 3.0
"""Events are written behind the rest: a life may be over before all of them have come."""


@dataclass(frozen=True)
class Killed:
    """A finished life that was killed at its point (`met`), or ended before it got there."""

    life: Life
    stab: Stab
    met: bool
    seconds: float
    """From the SIGKILL to the end of the life: the start of the operator and the rest of the life."""


@pytest.fixture(scope="module")
def chosen(undisturbed: Mapping[str, Undisturbed]) -> Sequence[Stab]:
    """For both moments: what is not killed before its call is killed after it."""
    every = [stab for name, told in undisturbed.items() for stab in stabs(name, _points(name, told))]
    drawn = sample(every, seed_text(), SHARE)
    assert {stab.point.kind for stab in drawn} == {stab.point.kind for stab in every}
    print(f"\n{len(drawn)} of {len(every)} points; {AGAIN}; all of them: RL_KILL_POINTS=all")
    return drawn


def _points(name: str, told: Undisturbed) -> Sequence[Point]:
    return objects(told.points) if name in SAMPLED_SCRIPTS else told.points


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.nightly(
    "operator/src/rl_operator/reconcile", "operator/src/rl_operator/process", "operator/src/rl_operator/cluster"
)
def test_killed_at_any_call(
    theatre: Theatre, undisturbed: Mapping[str, Undisturbed], chosen: Sequence[Stab], moment: Moment
) -> None:
    meant = [stab for stab in chosen if stab.moment is moment]
    killed = kill_at_all(theatre, undisturbed, meant, moment)
    # Whether a call is repeated may depend on chance. If nothing else was drawn, the first call stands for its kind.
    missing = sorted(certain(meant) - certain(one.stab for one in killed if one.met))
    first_times = [Stab(life, Point(kind, 1), moment) for life, kind in missing]
    killed += kill_at_all(theatre, undisturbed, first_times, moment)
    print(f"\nkilled {moment}\n{table(killed)}")
    assert certain(one.stab for one in killed if one.met) == certain(meant)


def kill_at_all(
    theatre: Theatre, undisturbed: Mapping[str, Undisturbed], stabs: Sequence[Stab], moment: Moment
) -> list[Killed]:
    """In groups; whatever the point, the end is that of an undisturbed life."""
    killed: list[Killed] = []
    for group in in_groups(stabs, AT_ONCE):
        done = kill_at(theatre, group, moment)
        for one in done:
            differences = undisturbed[one.life.name].outcome.differences(one.life.outcome())
            assert not differences, f"{_what(one.stab)}:\n{differences}\n{theatre.operator.log[-6000:]}"
        sweep_away(theatre.admin, [one.life for one in done])
        killed += done
    return killed


def _what(stab: Stab) -> str:
    return f"killed at {stab} {stab.moment}; {AGAIN}"


def kill_at(theatre: Theatre, group: Sequence[Stab], moment: Moment) -> list[Killed]:
    stages = [(theatre.namespace(), stab) for stab in group]
    traps = Traps({runs.namespace: stab.point for runs, stab in stages}, moment)
    theatre.proxy.hooks = traps.hooks
    lives = [Life(runs, stab.life) for runs, stab in stages]

    def trapped(life: Life) -> bool:
        return life.runs.namespace in traps.sprung

    def missed(life: Life) -> bool:
        return life.over_at is not None and time.monotonic() > life.over_at + LATE_SECONDS

    play(theatre.admin, lives, until=lambda: all(trapped(life) or missed(life) for life in lives), frozen=trapped)
    theatre.operator.kill()
    killed_at = time.monotonic()
    theatre.proxy.hooks = Hooks()
    for life, stab in zip(lives, group, strict=True):
        if _hushes(stab):
            life.hush()
    theatre.operator.start()
    theatre.play_to_the_end(lives)
    return [
        Killed(life, stab, trapped(life), max(0.0, (life.over_at or 0.0) - killed_at))
        for life, stab in zip(lives, group, strict=True)
    ]


def certain(stabs: Iterable[Stab]) -> set[tuple[str, str]]:
    """The kinds of calls, by life. Whether a status within a phase is refreshed depends on how long the phase lasts."""
    return {(stab.life, stab.point.kind) for stab in stabs if stab.point.kind != "PATCH rltrainingruns/status"}


def _hushes(stab: Stab) -> bool:
    """Whether the Event about the end may be lost. It is repeated while the pod still has our finalizer; but a life
    does not wait for an Event, so that its pod may be released while earlier Events are still in flight.
    """
    return " events" in stab.point.kind or (stab.moment, stab.point.kind) == (Moment.AFTER, "PATCH pods")


def table(killed: Iterable[Killed]) -> str:
    """How long each of the calls took to converge, and their maximum."""
    lines = [f"{one.seconds:6.1f} s  {one.stab}{'' if one.met else '  (did not come)'}" for one in killed]
    met = [one for one in killed if one.met]
    slowest = max((one.seconds for one in met), default=0.0)
    return "\n".join([*lines, f"{slowest:6.1f} s  at most, for {len(met)} calls"])
