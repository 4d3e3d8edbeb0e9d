"""Leases of several environments, over HTTP, with a clock that the test controls."""

import pytest

from tinker_atropos.trajectory_api.messages.leases import MAX_LEASES
from tinker_atropos.trajectory_api.messages.requests import MAX_ENVIRONMENTS


async def beat(api, name: str, index: int, state: str = "working", reason: str | None = None):
    body = {"state": state, "reason": reason, "ttl_seconds": 15, "id": name, "index": index, "replaced": True}
    answer = await api.http.put("/rl/lease/environment", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def side(api) -> str:
    return (await api.lease("trainer", "working"))["peer"]["state"]


async def test_the_run_continues_while_one_of_them_lives(api) -> None:
    await api.begin()
    await beat(api, "a", 0)
    await beat(api, "b", 1)
    await beat(api, "a", 0, "failed", "boom")
    assert await side(api) == "working"
    api.clock.now += 1
    await beat(api, "b", 1, "failed", "bang")
    assert (await api.lease("trainer", "working"))["peer"] == {"state": "failed", "reason": "bang"}


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


async def test_a_restarted_trainer_forgets_ended_environments(api, build) -> None:
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
    assert len([key for key in api.service.journal.run_state().leases if key != "trainer"]) == MAX_LEASES
    body = {"state": "working", "id": "one-more", "ttl_seconds": 15}
    answer = await api.http.put("/rl/lease/environment", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "64 environments are live: no more can join this run",
    )
    assert (await beat(api, "e5", 5))["peer"]["state"] == "absent"


async def test_an_endless_reason_is_cut(api) -> None:
    await api.begin()
    await api.lease("environment", "failed", "x" * 5000)
    assert len((await api.lease("trainer", "working"))["peer"]["reason"]) == 1000


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
    ("method", "path", "body"),
    [
        ("PUT", "/rl/lease/environment", {"state": "working", "index": MAX_ENVIRONMENTS}),
        ("POST", "/rl/metrics", {"metrics": {"a": 1}, "source": "runner", "environment": MAX_ENVIRONMENTS}),
        ("POST", "/register-env", {"max_token_length": 1, "group_size": 1, "index": MAX_ENVIRONMENTS}),
    ],
)
async def test_an_impossible_index_is_refused(api, method, path, body) -> None:
    await api.begin()
    answer = await api.http.request(method, path, json=body)
    assert (answer.status_code, "less than 256" in answer.json()["detail"]) == (422, True)
