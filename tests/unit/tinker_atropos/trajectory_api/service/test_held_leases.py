"""Leases of several environments, over HTTP, with a clock that the test controls."""

import asyncio
import time
from functools import partial

import pytest
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.held_connection import SILENT_SECONDS, HeldConnection
from tinker_atropos.trajectory_api.messages.requests import LeaseReport
from tinker_atropos.trajectory_api.service.held_leases import (
    MAX_LEASES,
    Lease,
    LeaseView,
    environments_view,
    not_live,
    view,
)
from tinker_atropos.trajectory_api.store.run_record import run_state


@pytest.mark.parametrize(
    ("lease", "silence", "expected"),
    [
        (None, 0, LeaseView("absent")),
        (("starting", None), 15, LeaseView("starting")),
        (("working", None), 15, LeaseView("working")),
        (("working", None), 15.1, LeaseView("lost", "no heartbeat from the trainer for more than 15 seconds")),
        (("starting", None), 99, LeaseView("lost", "no heartbeat from the trainer for more than 15 seconds")),
        (("done", None), 10_000, LeaseView("done")),
        (("failed", "out of memory"), 10_000, LeaseView("failed", "out of memory")),
    ],
)
def test_what_the_peer_receives(lease, silence, expected) -> None:
    held = None if lease is None else Lease(LeaseReport(state=lease[0], reason=lease[1]), renewed_at=100)
    assert view("trainer", held, 100 + silence) == expected


NOW = 1000.0
SILENT = LeaseView("lost", "no heartbeat from the environment for more than 15 seconds")


def lease(index: int, state: str, ago: float, reason: str | None = None, *, replaced: bool = True) -> Lease:
    return Lease(LeaseReport(state=state, reason=reason, index=index, replaced=replaced), NOW - ago)


in_the_run_pod = partial(lease, 0, replaced=False)

SIDES = {
    "none has come": ([], LeaseView("absent")),
    "one works": ([(0, "working", 1, "making rollouts")], LeaseView("working", "making rollouts")),
    "one still starts": ([(0, "starting", 1, "setting up"), (1, "working", 1)], LeaseView("working")),
    "both start": ([(1, "starting", 1, "b"), (0, "starting", 1, "a")], LeaseView("starting", "a")),
    "one failed, another works": ([(0, "failed", 1, "boom"), (1, "working", 1)], LeaseView("working")),
    "one is silent, another works": ([(0, "working", 99), (1, "working", 1)], LeaseView("working")),
    "one is done, another works": ([(0, "done", 1), (1, "working", 1)], LeaseView("working")),
    "a new process in the place of a silent one": ([(0, "working", 99), (0, "starting", 1)], LeaseView("starting")),
    "both are done": ([(0, "done", 5), (1, "done", 9)], LeaseView("done")),
    "one is done, one failed": ([(0, "done", 1), (1, "failed", 9, "boom")], LeaseView("failed", "boom")),
    "two failed: the last one's reason": ([(0, "failed", 9, "a"), (1, "failed", 5, "b")], LeaseView("failed", "b")),
    "one failed, then the other fell silent": ([(0, "failed", 50, "boom"), (1, "working", 40)], SILENT),
}


@pytest.mark.parametrize(("leases", "expected"), SIDES.values(), ids=SIDES)
def test_several_environments_count_as_one_side(leases, expected) -> None:
    assert environments_view([lease(*each) for each in leases], NOW) == expected


AWAY = {
    "failed just now": ([(0, "failed", 10, "boom")], "away"),
    "done too early": ([(0, "done", 10)], "away"),
    "silent for less than the grace": ([(0, "working", 15 + 299)], "away"),
    "silent for longer": ([(0, "working", 15 + 300)], "lost"),
    "failed long ago": ([(0, "failed", 300, "boom")], "failed"),
    "the grace counts from the last live one": ([(0, "failed", 900, "boom"), (1, "done", 10)], "away"),
    "one is live": ([(0, "failed", 900, "boom"), (1, "starting", 10)], "starting"),
    "none has ever come": ([], "absent"),
}


@pytest.mark.parametrize(("leases", "state"), AWAY.values(), ids=AWAY)
def test_a_replaceable_side_is_away_before_it_is_gone(leases, state) -> None:
    assert environments_view([lease(*each) for each in leases], NOW, grace_seconds=300).state == state


def test_an_absence_names_the_last_failure_and_how_long_it_may_last() -> None:
    leases = [lease(0, "failed", 42, "ValueError: no data")]
    assert environments_view(leases, NOW, grace_seconds=300).reason == (
        "no environment has been live for more than 30 s, and 300 s are allowed until another one comes; the last one "
        "is failed: "
        "ValueError: no data"
    )


OVER = {
    "the evaluator works": ([(0, "working", 1), (1, "done", 1)], 100, "working"),
    "the others have a moment": ([(0, "done", 1), (1, "working", 1)], 9, "working"),
    "and no more": ([(0, "done", 1), (1, "working", 1)], 11, "done"),
    "the evaluator's replacement is waited for": ([(0, "failed", 1), (1, "done", 1)], 1, "away"),
    "also when it fell silent before": ([(0, "working", 99)], 1, "away"),
    "and not forever": ([(0, "failed", 1), (1, "done", 1)], 300, "failed"),
    "it is there": ([(0, "failed", 99), (0, "starting", 1)], 301, "starting"),
    "nobody else is replaced any more": ([(0, "done", 1), (1, "failed", 1)], 1, "done"),
    "nor who evaluates, once that is done": ([(0, "working", 20), (0, "done", 9)], 11, "done"),
    "no evaluator has ever come": ([(1, "working", 1)], 100, "working"),
}


@pytest.mark.parametrize(("leases", "over_for", "state"), OVER.values(), ids=OVER)
def test_when_the_run_is_over_the_evaluator_decides(leases, over_for, state) -> None:
    seen = environments_view([lease(*each) for each in leases], NOW, grace_seconds=300, over_for=over_for)
    assert seen.state == state


def test_when_the_run_is_over_the_run_pods_evaluator_is_not_replaced() -> None:
    leases = [in_the_run_pod("failed", 1, "boom"), lease(1, "done", 1)]
    assert environments_view(leases, NOW, grace_seconds=300, over_for=1) == LeaseView("failed", "boom")
    assert environments_view([lease(0, "failed", 1, "boom")], NOW, over_for=1) == LeaseView("failed", "boom")


INSIDE = {
    "it works": (in_the_run_pod("working", 1), "working"),
    "it failed": (in_the_run_pod("failed", 1, "boom"), "failed"),
    "it fell silent": (in_the_run_pod("working", 16), "lost"),
    "it left early": (in_the_run_pod("done", 1), "done"),
}


@pytest.mark.parametrize(("inside", "state"), INSIDE.values(), ids=INSIDE)
def test_the_end_of_an_irreplaceable_environment_is_the_end_though_others_live(inside, state) -> None:
    leases = [inside, lease(1, "working", 1), lease(2, "failed", 0, "bang")]
    assert environments_view(leases, NOW, grace_seconds=300).state == state
    assert environments_view(leases, NOW, grace_seconds=300, over_for=1).state == "working"
    assert environments_view(leases, NOW).state == "working", "without anybody who replaces, all are alike"


def test_the_lease_that_ended_first_is_forgotten_first() -> None:
    leases = {
        "live": lease(0, "working", 1),
        "silent": lease(1, "working", 20),
        "failed": lease(2, "failed", 10),
        "long silent": lease(3, "working", 40),
    }
    assert not_live(leases, NOW) == ["long silent", "failed", "silent"]


async def beat(api, name: str, index: int, state: str = "working", reason: str | None = None):
    body = {"state": state, "reason": reason, "ttl_seconds": 15, "id": name, "index": index, "replaced": True}
    answer = await api.http.put("/rl/lease/environment", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def side(api) -> str:
    return (await api.lease("trainer", "working"))["peer"]["state"]


async def test_an_environment_without_an_id_is_still_the_only_one(api) -> None:
    await api.begin()
    await api.lease("environment", "working")
    await api.lease("environment", "failed", "boom")
    assert await side(api) == "failed"


async def test_replaceable_environments_are_waited_for_across_a_restart_of_the_api(start_api) -> None:
    async with start_api(environment_grace=300) as api:
        await api.begin()
        await beat(api, "a", 0)
        await beat(api, "b", 1, "failed", "boom")
        clock = api.clock
    async with start_api(clock, environment_grace=300) as api:
        assert await side(api) == "working"
        clock.now += 16
        assert await side(api) == "away"
        await beat(api, "c", 0, "starting")
        assert await side(api) == "starting"
        clock.now += 15 + 299
        assert await side(api) == "away"
        clock.now += 2
        assert await side(api) == "lost"


async def test_the_environment_in_the_runs_pod_is_missed_at_once_even_across_a_restart_of_the_api(start_api) -> None:
    async with start_api(environment_grace=300) as api:
        await api.begin()
        await api.lease("environment", "working")
        await beat(api, "b", 1)
        assert await side(api) == "working"
        await api.lease("environment", "failed", "boom")
        assert await side(api) == "failed"
        clock = api.clock
    async with start_api(clock, environment_grace=300) as api:
        await beat(api, "b", 1)
        assert (await api.lease("trainer", "working"))["peer"] == {"state": "failed", "reason": "boom"}


async def test_a_restarted_trainer_forgets_ended_environments(api) -> None:
    await api.begin()
    await beat(api, "a", 0, "failed", "boom")
    await beat(api, "b", 1)
    await api.post("/register", build.trainer_registration())
    assert [lease["id"] for lease in api.service.leases.to_wire()] == ["b"]


async def test_leases_are_bounded_and_ended_ones_make_room(api) -> None:
    await api.begin()
    await beat(api, "ended", 0, "done")
    for number in range(1, MAX_LEASES):
        await beat(api, f"e{number}", number)
    await beat(api, "new", 99)
    ids = [lease["id"] for lease in api.service.leases.to_wire()]
    assert (len(ids), "ended" in ids, "new" in ids) == (MAX_LEASES, False, True)
    assert len([key for key in api.service.journal.read(run_state).leases if key != "trainer"]) == MAX_LEASES
    body = {"state": "working", "id": "one-more", "ttl_seconds": 15}
    answer = await api.http.put("/rl/lease/environment", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "64 environments are live: no more can join this run",
    )
    assert (await beat(api, "e5", 5))["peer"]["state"] == "absent"


async def test_all_peers_learn_which_evaluation_was_reported_last(start_api) -> None:
    async with start_api() as api:
        await api.begin()
        assert (await beat(api, "a", 0))["evaluated_step"] is None
        for step, source in ((0, "evaluation"), (5, "evaluation"), (0, "evaluation"), (9, "runner")):
            await api.post("/rl/metrics", {"step": step, "metrics": {"a": 1}, "source": source, "environment": 0})
        assert (await beat(api, "a", 0))["evaluated_step"] == 5
        assert (await api.get("/rl/metrics"))["records"][0]["environment"] == 0
    async with start_api() as api:
        assert (await beat(api, "b", 0))["evaluated_step"] == 5


@pytest.mark.parametrize(
    ("silence", "expected"),
    [
        (15, LeaseView("working", "making rollouts")),
        (90, LeaseView("working", "silent for more than 1 min: frozen, or short of CPU?")),
        (SILENT_SECONDS + 1, LeaseView("lost", "no heartbeat from the environment for more than 600 seconds")),
    ],
)
def test_a_silent_process_whose_connection_is_open_is_not_lost(silence, expected) -> None:
    held = Lease(LeaseReport(state="working", reason="making rollouts"), renewed_at=100, held=True)
    assert view("environment", held, 100 + silence) == expected


async def becomes(what: str, condition) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, what
        await asyncio.sleep(0.01)


async def test_a_frozen_trainer_is_waited_for_until_its_connection_closes(start_api) -> None:
    async with start_api() as api:
        await api.begin()
        held = HeldConnection(api.url, "/rl/lease/trainer")
        await held.keep()
        await api.lease("trainer", "working")
        await becomes("the connection is known", lambda: api.service.leases._connections["trainer"] == 1)
        api.clock.now += 7200
        answer = await api.lease("environment", "working")
        assert (answer["run_over"], answer["peer"]["state"]) == (False, "working")
        assert answer["peer"]["reason"].endswith("frozen, or short of CPU?")
        held.close()
        await becomes("the connection is known", lambda: not api.service.leases._connections)
        answer = await api.lease("environment", "working")
        gone = {"state": "lost", "reason": "no heartbeat from the trainer for more than 15 seconds"}
        assert (answer["run_over"], answer["peer"]) == (True, gone)


async def test_of_several_environments_each_holds_its_own_connection(start_api) -> None:
    async with start_api(environment_grace=300) as api:
        await api.begin()
        held = HeldConnection(api.url, "/rl/lease/environment?id=a")
        await held.keep()
        await becomes("the connection is known", lambda: api.service.leases._connections["environment/a"] == 1)
        await beat(api, "a", 0)
        await beat(api, "b", 1)
        api.clock.now += 125
        assert [each["state"] for each in api.service.leases.to_wire()] == ["working", "lost"]
        assert api.service.leases.live_ids() == {"a"}, "its items stay its own"
        held.close()
        await becomes("the connection is known", lambda: not api.service.leases.live_ids())


async def test_a_connection_is_known_to_be_closed_when_the_api_has_ended(start_api) -> None:
    async with start_api() as api:
        held = HeldConnection(api.url, "/rl/lease/trainer")
        await held.keep()
        assert held.open
        await becomes("the connection is known", lambda: api.service.leases._connections["trainer"] == 1)
    held.close()
    await becomes("the connection is known", lambda: not held.open)
    await held.keep()  # nothing listens: it tries again with the next heartbeat
    assert not held.open
