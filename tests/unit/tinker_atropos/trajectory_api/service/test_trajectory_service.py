"""Numbers and names of environments, also if they are replaced by their index; and the room that they are told."""

import pytest
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build
from tests.unit.tinker_atropos.trajectory_api.conftest import Clock

from tinker_atropos.trajectory_api.messages.bodies import ApiRefusal
from tinker_atropos.trajectory_api.messages.requests import MAX_ENVIRONMENTS, EnvRegistration
from tinker_atropos.trajectory_api.service.trajectory_service import Roster, TrajectoryService


def registration(name: str = "sort", index: int | None = None) -> EnvRegistration:
    return EnvRegistration(max_token_length=1, group_size=1, desired_name=name, index=index)


def joined(roster: Roster, name: str = "sort", index: int | None = None) -> str:
    env = roster.place_of(registration(name, index))
    roster.put(env)
    return f"{env.env_id} {env.wandb_name}"


def test_without_an_index_a_silent_environment_frees_its_slot() -> None:
    clock = Clock()
    roster = Roster([], clock)
    assert [joined(roster), joined(roster, index=0), joined(roster, "other")] == ["0 sort_0", "1 sort_1", "2 other_0"]
    clock.now += 10
    roster.seen(1)
    clock.now += 10
    assert joined(roster) == "0 sort_0"
    assert [env.env_id for env in roster.live()] == [0, 1]


def test_by_index_a_new_process_gets_the_previous_ones_slot_at_once() -> None:
    roster = Roster([], Clock(), by_index=True)
    assert [joined(roster, index=0), joined(roster, index=1), joined(roster, index=1)] == [
        "0 sort_0",
        "1 sort_1",
        "1 sort_1",
    ]


def test_by_index_no_environment_takes_the_slot_of_a_dead_one() -> None:
    clock = Clock()
    roster = Roster([], clock, by_index=True)
    joined(roster, index=0)
    clock.now += 1000
    assert joined(roster, index=1) == "1 sort_1"
    assert joined(roster, index=0) == "0 sort_0"


def test_by_index_the_api_may_restart_in_between() -> None:
    before = Roster([], Clock(), by_index=True)
    kept = [before.place_of(registration(index=3))]
    assert joined(Roster(kept, Clock(), by_index=True), index=3) == "0 sort_0"


def test_slots_are_bounded() -> None:
    roster = Roster([], Clock())
    for number in range(MAX_ENVIRONMENTS):
        joined(roster, f"e{number}")
    with pytest.raises(ApiRefusal, match="256 environments have registered"):
        roster.place_of(registration("one more"))
    with pytest.raises(ApiRefusal, match="env_id 256 is not registered"):
        roster.seen(256)


@pytest.mark.parametrize(("grace", "env_ids"), [(None, [0, 1, 2]), (300, [0, 1, 1])])
async def test_over_http_the_index_counts_if_environments_are_replaceable(start_api, grace, env_ids) -> None:
    async with start_api(environment_grace=grace) as api:
        await api.post("/register", build.trainer_registration(max_staleness=1))
        await api.get("/batch")
        answers = [await api.post("/register-env", build.env_registration(index=index)) for index in (0, 1, 1)]
        assert [answer["env_id"] for answer in answers] == env_ids
        rooms = [(await api.get("/status-env", {"env_id": env_id}))["room"] for env_id in sorted(set(env_ids))]
        assert sum(rooms) == 8, "two batches of four rollouts, whoever makes them"


async def test_a_batch_that_was_just_filled_is_missing_nothing(journal) -> None:
    """An environment that asks between the commit and the trainer's answer would begin groups that end up stale."""
    rooms: list[int | None] = []

    class Watched(TrajectoryService):
        async def _write(self, kind, change, *args):
            answer = await super()._write(kind, change, *args)
            if kind == "take_batch":
                rooms.append(self._pace(self.group_counts()).room)
            return answer

    async def gone() -> bool:
        return False

    service = Watched(journal)
    await service.register(build.registration(max_staleness=0))
    assert (await service.take_batch(0, 0.0, gone)).missing == 4
    build.post(journal, build.delivery(1, 2))
    assert (await service.take_batch(0, 0.0, gone)).missing == 0
    assert rooms[-1] == 0
    service.close()
