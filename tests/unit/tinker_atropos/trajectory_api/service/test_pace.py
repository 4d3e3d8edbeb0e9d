"""The status that environments receive, checked with BaseEnv's own rules for pausing and ending."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.trajectory_api.messages.requests import (
    EnvRegistration,
    GroupCount,
    ProgressReport,
    RegisteredEnv,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.service.held_leases import LeaseView
from tinker_atropos.trajectory_api.service.pace import over_reason, pace, room_of, status_of_env

WORKING = LeaseView("working")


def registration(**changes: int | None) -> TrainerRegistration:
    return build.registration(**{"batch_size": 32} | changes)


def environment(env_id: int = 0, group_size: int = 8, weight: float = 1.0, share: float | None = None) -> RegisteredEnv:
    body = EnvRegistration(max_token_length=10, weight=weight, group_size=group_size, min_batch_allocation=share)
    return RegisteredEnv(env_id, f"env_{env_id}", connected=True, registration=body)


def ends(status: dict[str, Any], total_steps: int, group_size: int, batch_size: int) -> bool:
    """BaseEnv.env_manager's rule (base.py:1198-1205)."""
    return status["current_step"] + status["queue_size"] * group_size // batch_size > total_steps


def starts_rollouts(
    status: dict[str, Any], max_batches_offpolicy: int, group_size: int, batch_size: int, share: float | None
) -> bool:
    """BaseEnv's rules for a full queue and for its number of workers (base.py:1079-1120, 1209-1245)."""
    derived_batch_size = int(batch_size * (status["unallocated_fraction"] + (share or 0.0)))
    full = status["queue_size"] * group_size >= max_batches_offpolicy * batch_size and share is None
    workers = max_batches_offpolicy * derived_batch_size // group_size - status["queue_size"]
    return not full and workers > 0


@pytest.mark.parametrize(
    ("progress", "trainer", "expected"),
    [
        ({"steps_trained": 3}, WORKING, None),
        ({"steps_trained": 3}, LeaseView("absent"), None),
        ({"steps_trained": 3, "training_done": True}, WORKING, "training is done"),
        ({"steps_trained": 3, "training_done": True, "reason": "stopped"}, WORKING, "stopped"),
        ({"steps_trained": 3}, LeaseView("lost", "silent"), "the trainer is lost: silent"),
        ({"steps_trained": 3}, LeaseView("failed"), "the trainer is failed"),
        ({"steps_trained": 3}, LeaseView("done"), "the trainer is done"),
    ],
)
def test_over_reason(progress, trainer, expected) -> None:
    assert over_reason(ProgressReport(**progress), trainer) == expected


@given(
    steps_trained=st.integers(0, 10),
    queued=st.integers(0, 60),
    delivered=st.integers(0, 4),
    starving=st.booleans(),
    max_batches_offpolicy=st.integers(1, 5),
    share=st.sampled_from([None, 0.25, 1.0]),
)
def test_an_environment_never_ends_early_and_never_makes_a_surplus(
    *, steps_trained: int, queued: int, delivered: int, starving: bool, max_batches_offpolicy: int, share: float | None
) -> None:
    counts = [GroupCount("queued", 0, 8, queued), GroupCount("delivered", 0, 8, delivered)]
    progress = ProgressReport(steps_trained=steps_trained)
    current = pace(registration(), progress, counts, over=False, missing=32 if starving else 0)
    env = environment(share=share)
    status = status_of_env(env, [env], counts, 32, current)
    works = starts_rollouts(status, max_batches_offpolicy, 8, 32, share)
    steps_left = 10 - steps_trained
    assert not ends(status, 10, 8, 32)
    if starving and queued < 4 and share is None:
        assert works, "a trainer that waits in vain is never answered by a pause"
    elif not (starving and queued < 4) and (queued + delivered) * 8 >= steps_left * 32:
        assert not works, "nobody pays for groups that will not be trained"


@given(queued=st.integers(0, 60), steps_trained=st.integers(0, 10))
def test_an_environment_ends_when_the_run_is_over(queued: int, steps_trained: int) -> None:
    counts = [GroupCount("queued", 0, 8, queued)]
    current = pace(registration(), ProgressReport(steps_trained=steps_trained), counts, over=True, missing=32)
    status = status_of_env(environment(), [], counts, 32, current)
    assert ends(status, 10, 8, 32)
    assert not starts_rollouts(status, 3, 8, 32, None)


@pytest.mark.parametrize(("registered", "reported", "room"), [(8, 1, 40), (1, 8, 264), (1, None, 40), (None, 0, 8)])
def test_the_trainer_steers_the_room(registered, reported, room) -> None:
    """At most as many batches as it said last, and one more; 24 rollouts are queued."""
    counts = [GroupCount("queued", 0, 8, 3)]
    progress = ProgressReport(steps_trained=0, max_staleness=reported)
    trainer = registration(max_staleness=registered, num_steps=40)
    assert pace(trainer, progress, counts, over=False, missing=0).room == room


def test_a_report_that_does_not_say_it_changes_nothing() -> None:
    said = ProgressReport(steps_trained=3, max_staleness=2)
    assert ProgressReport(steps_trained=4).after(said).max_staleness == 2
    assert ProgressReport(steps_trained=4, max_staleness=0).after(said).max_staleness == 0


def test_odd_sizes_that_form_no_batch_do_not_pause_the_environment() -> None:
    counts = [GroupCount("queued", 0, 12, 1), GroupCount("queued", 0, 8, 3)]  # 36 rollouts, none sum to 32
    current = pace(registration(), ProgressReport(steps_trained=0), counts, over=False, missing=32)
    status = status_of_env(environment(), [], counts, 32, current)
    assert starts_rollouts(status, 1, 8, 32, None)


def test_before_a_registration_only_the_queue_is_known() -> None:
    counts = [GroupCount("queued", 0, 8, 3)]
    current = pace(None, ProgressReport(steps_trained=0), counts, over=False, missing=0)
    assert (current.current_step, current.queue_size(24, 8)) == (0, 3)


def test_weights_and_minimum_shares_of_several_environments() -> None:
    first, second = environment(0, weight=3.0), environment(1, weight=1.0, share=0.25)
    counts = [GroupCount("queued", 0, 8, 2), GroupCount("queued", 1, 8, 3), GroupCount("buffered", 0, 3, 1)]
    current = pace(registration(), ProgressReport(steps_trained=0), counts, over=False, missing=0)
    assert status_of_env(first, [first, second], counts, 32, current) == {
        "current_step": 0,
        "queue_size": 4,  # its own 16 rollouts, and of the other's 24 what is beyond its minimum of 8
        "unallocated_fraction": 0.75,
        "self_queue_size": 2,
        "max_group_size": 8,
        "env_weight": 0.75,
        "room": None,
    }


@pytest.mark.parametrize(
    ("max_staleness", "steps_trained", "queued", "delivered", "missing", "over", "room"),
    [
        (None, 0, 4, 0, 32, False, None),
        (None, 0, 4, 0, 32, True, None),
        (0, 0, 0, 0, 0, False, 32),
        (0, 0, 0, 4, 0, False, 0),
        (0, 0, 3, 0, 32, False, 8),  # 24 of the 32 that the trainer waits for are queued
        (2, 3, 4, 4, 0, False, 32),
        (2, 3, 9, 4, 0, False, 0),
        (8, 9, 2, 0, 0, False, 16),  # the last step: 32 rollouts are all that is wanted
        (8, 10, 0, 0, 0, False, 0),
        (8, 10, 0, 4, 8, False, 8),  # a replay that lost a group
        (8, 0, 0, 0, 32, True, 0),
    ],
)
def test_room(*, max_staleness, steps_trained, queued, delivered, missing, over, room) -> None:
    counts = [GroupCount("queued", 0, 8, queued), GroupCount("delivered", 0, 8, delivered)]
    progress = ProgressReport(steps_trained=steps_trained)
    current = pace(registration(max_staleness=max_staleness), progress, counts, over=over, missing=missing)
    assert current.room == room


def test_odd_sizes_that_form_no_batch_leave_room_for_another() -> None:
    counts = [GroupCount("queued", 0, 12, 1), GroupCount("queued", 0, 8, 3)]
    progress = ProgressReport(steps_trained=0)
    assert pace(registration(max_staleness=0), progress, counts, over=False, missing=32).room == 32


@pytest.mark.parametrize(
    ("room", "group_size", "environments", "parts"),
    [
        (None, 8, 2, [None, None]),
        (0, 8, 2, [0, 0]),
        (64, 8, 1, [64]),
        (20, 8, 1, [20]),
        (64, 8, 2, [32, 32]),
        (64, 8, 3, [24, 24, 16]),
        (20, 8, 2, [16, 8]),  # three groups, as one environment would start
        (3, 8, 2, [3, 0]),  # a part of a group: one of them gets it
        (8, 8, 3, [8, 0, 0]),
        (5, 1, 3, [2, 2, 1]),
    ],
)
def test_room_is_shared_by_whole_groups(*, room, group_size, environments, parts) -> None:
    assert [room_of(room, group_size, rank, environments) for rank in range(environments)] == parts


@given(room=st.integers(0, 500), group_size=st.integers(1, 32), environments=st.integers(1, 9))
def test_several_environments_start_as_many_groups_as_one_would(room: int, group_size: int, environments: int) -> None:
    parts = [room_of(room, group_size, rank, environments) or 0 for rank in range(environments)]
    assert sum(-(-part // group_size) for part in parts) == -(-room // group_size)


def test_room_follows_the_number_of_live_environments() -> None:
    envs = [environment(env_id) for env_id in (0, 2, 5)]
    progress = ProgressReport(steps_trained=0)
    current = pace(registration(max_staleness=0), progress, [], over=False, missing=0)
    rooms = [status_of_env(env, envs[1:], [], 32, current)["room"] for env in envs[1:]]
    assert rooms == [16, 16]
    newcomer = status_of_env(envs[0], envs[1:], [], 32, current)
    assert newcomer["room"] == 16, "32 rollouts are four groups: two, one and one"


def test_an_environment_without_weight_is_not_starved() -> None:
    idle, busy = environment(0, weight=0.0), environment(1)
    current = pace(registration(), ProgressReport(steps_trained=0), [], over=False, missing=0)
    assert status_of_env(idle, [idle, busy], [], 32, current)["env_weight"] == 0.01
    assert status_of_env(idle, [idle], [], 32, current)["env_weight"] == 1.0


@pytest.mark.parametrize("length", [-9, -(2**62), 0, 2**62])
def test_no_length_claimed_by_another_removes_the_weight(length: int) -> None:
    claimed = EnvRegistration(max_token_length=length, group_size=8)
    env, other = environment(), RegisteredEnv(env_id=1, wandb_name="b", connected=True, registration=claimed)
    nothing_yet = pace(None, ProgressReport(steps_trained=0), [], over=False, missing=0)
    status = status_of_env(env, [env, other], [], 32, nothing_yet)
    assert 0 < status["env_weight"] <= 1
