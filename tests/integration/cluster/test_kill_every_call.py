"""Whoever kills the operator, at whatever call to the API server: the end of a run is the same.

The lives are played once undisturbed, which gives the calls and the ends. Then every call is a point where the operator
is killed, once before the API server hears of it and once before the operator hears the answer. There is one life per
point, and its call is held there; when all of a group are held, one SIGKILL hits each of them just where it is. Of a
run with an own environment a sample of the calls is enough.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from tests.integration.cluster.kill_points import Moment, Point, Traps, in_groups, sample
from tests.integration.cluster.lives import ALL_SCRIPTS, SAMPLED_SCRIPTS, Life, play, sweep_away
from tests.integration.cluster.proxy import Hooks
from tests.integration.cluster.theatre import Theatre, Undisturbed, open_theatre

AT_ONCE = 10
"""As many calls are held at most: the operator has 20 connections, and eight of them are watches."""
LATE_SECONDS = 3.0
"""Events are written behind the rest: a life may be over before all of them have come."""


@dataclass(frozen=True)
class Killed:
    """A life that was hit at a point (`met`), or was over before it came there, and is over now."""

    life: Life
    point: Point
    met: bool
    seconds: float
    """From the SIGKILL to the end of the life: the start of the operator and the rest of the life."""


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    with open_theatre() as theatre:
        yield theatre


@pytest.fixture(scope="module")
def undisturbed(theatre: Theatre) -> Mapping[str, Undisturbed]:
    return theatre.undisturbed()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("name", ALL_SCRIPTS)
def test_killed_at_every_call(
    theatre: Theatre, undisturbed: Mapping[str, Undisturbed], name: str, moment: Moment
) -> None:
    expected = undisturbed[name]
    killed: list[Killed] = []
    chosen = sample(expected.points) if name in SAMPLED_SCRIPTS else expected.points
    for points in in_groups(chosen, AT_ONCE):
        group = kill_at(theatre, name, points, moment)
        for one in group:
            differences = expected.outcome.differences(one.life.outcome())
            assert not differences, f"killed at {one.point} {moment}:\n{differences}\n{theatre.operator.log[-6000:]}"
        sweep_away(theatre.admin, [one.life for one in group])
        killed += group
    print(f"\n{name}, killed {moment}\n{table(killed)}")
    assert certain(one.point for one in killed if one.met) == certain(chosen)


def kill_at(theatre: Theatre, name: str, points: Sequence[Point], moment: Moment) -> list[Killed]:
    stages = [(theatre.namespace(), point) for point in points]
    traps = Traps({runs.namespace: point for runs, point in stages}, moment)
    theatre.proxy.hooks = traps.hooks
    lives = [Life(runs, name) for runs, _ in stages]

    def trapped(life: Life) -> bool:
        return life.runs.namespace in traps.sprung

    def missed(life: Life) -> bool:
        return life.over_at is not None and time.monotonic() > life.over_at + LATE_SECONDS

    play(theatre.admin, lives, until=lambda: all(trapped(life) or missed(life) for life in lives), frozen=trapped)
    theatre.operator.kill()
    killed_at = time.monotonic()
    theatre.proxy.hooks = Hooks()
    for life, point in zip(lives, points, strict=True):
        if _hushes(point, moment):
            life.hush()
    theatre.operator.start()
    theatre.play_to_the_end(lives)
    return [
        Killed(life, point, trapped(life), max(0.0, (life.over_at or 0.0) - killed_at))
        for life, point in zip(lives, points, strict=True)
    ]


def certain(points: Iterable[Point]) -> set[str]:
    """The kinds of calls. Whether a status within a phase is refreshed depends on how long the moment lasts."""
    return {point.kind for point in points} - {"PATCH rltrainingruns/status"}


def _hushes(point: Point, moment: Moment) -> bool:
    """Whether the Event that tells of the end may be lost. It is told again for as long as the pod is still held; but
    a life does not wait for an Event, so that its pod may be let go of while earlier Events are still on their way.
    """
    return " events" in point.kind or (moment, point.kind) == (Moment.AFTER, "PATCH pods")


def table(killed: Iterable[Killed]) -> str:
    """How long each of the calls took to converge, and all of them at most."""
    lines = [f"{one.seconds:6.1f} s  {one.point}{'' if one.met else '  (did not come)'}" for one in killed]
    met = [one for one in killed if one.met]
    slowest = max((one.seconds for one in met), default=0.0)
    return "\n".join([*lines, f"{slowest:6.1f} s  at most, for {len(met)} calls"])
