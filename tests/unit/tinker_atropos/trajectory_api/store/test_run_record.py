"""What the api remembers across a restart, and for how long."""

from typing import Any

import pytest
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.trajectory_api.messages.requests import LeaseReport, MetricsReport, ProgressReport
from tinker_atropos.trajectory_api.store.run_record import (
    METRICS_KEPT,
    add_metrics,
    metrics_after,
    record_lease,
    record_progress,
    register,
    run_state,
)


async def test_a_restart_keeps_everything(start_api) -> None:
    async def everything(api: Any, env_id: int) -> list[Any]:
        asked = [await api.get("/status"), await api.get("/status-env", {"env_id": env_id}), await api.get("/info")]
        return [*asked, await api.books(), await api.get("/latest_example"), await api.get("/batch?step=1")]

    async with start_api() as api:
        env_id = await api.begin(num_steps=10)
        await api.post("/scored_data_list", [build.group(first_token=number) for number in range(5)])
        await api.post("/scored_data", build.group(size=1))
        await api.http.post("/scored_data", json=build.group(scores=[]))
        await api.get("/batch?step=0")
        await api.post("/rl/progress", {"steps_trained": 1})
        await api.get("/batch?step=1")
        await api.lease("environment", "failed", "it broke")
        await api.post("/rl/metrics", {"step": 1, "metrics": {"a": 1}, "source": "runner"})
        before = await everything(api, env_id)
    async with start_api() as api:
        assert await everything(api, env_id) == before
        assert (await api.books())["groups"]["refused"] == {"scores": 1}
        assert (await api.lease("trainer", "working"))["peer"] == {"state": "failed", "reason": "it broke"}
        assert len((await api.get("/rl/metrics"))["records"]) == 1
        assert (await api.post("/scored_data", build.group(size=1, first_token=9)))["buffer_size"] == 0
        assert (await api.post("/register-env", build.env_registration()))["wandb_name"] == "sort_1"


async def test_a_silent_peer_gets_its_full_time_after_a_restart(start_api) -> None:
    async with start_api() as api:
        await api.lease("trainer", "working")
    async with start_api() as api:
        assert api.service.over_reason() is None
        api.clock.now += 15.1
        assert (
            api.service.over_reason() == "the trainer is lost: no heartbeat from the trainer for more than 15 seconds"
        )


async def test_heartbeats_of_the_same_state_are_not_written(start_api) -> None:
    async with start_api() as api:
        await api.lease("trainer", "working")
        before = api.service.journal.commits
        await api.lease("trainer", "working")
        assert api.service.journal.commits == before
        await api.lease("trainer", "done")
        assert api.service.journal.commits == before + 1


def test_old_metrics_make_room(journal) -> None:
    journal._writer.execute("PRAGMA synchronous = OFF")  # a thousand commits
    for step in range(METRICS_KEPT + 2):
        journal.write(add_metrics, MetricsReport(step=step, metrics={}, source="s"), 0.0)
    assert [record["seq"] for record in journal.read(metrics_after, 0)] == list(range(3, METRICS_KEPT + 3))


# Progress: what the trainer reports last, late or again.

PROGRESS = {"steps_trained": 5, "checkpoint_step": 3, "totals": {"steps": 5}}


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ({"steps_trained": 4}, PROGRESS),
        ({"steps_trained": 6}, PROGRESS | {"steps_trained": 6}),
        ({"steps_trained": 4, "checkpoint_step": 2}, PROGRESS),
        ({"steps_trained": 5, "checkpoint_step": 5}, PROGRESS | {"checkpoint_step": 5}),
        ({"steps_trained": 4, "totals": {"steps": 6}}, PROGRESS | {"totals": {"steps": 6}}),
        (
            {"steps_trained": 4, "training_done": True, "reason": "stopped"},
            PROGRESS | {"training_done": True, "reason": "stopped"},
        ),
    ],
)
def test_progress_never_decreases(journal, late, expected) -> None:
    journal.write(record_progress, ProgressReport(**PROGRESS))
    journal.write(record_progress, ProgressReport(**late))
    assert journal.read(run_state).progress == ProgressReport(**expected)


def test_the_end_is_final(journal) -> None:
    journal.write(record_progress, ProgressReport(steps_trained=5, training_done=True, reason="stopped"))
    journal.write(record_progress, ProgressReport(steps_trained=5))
    assert journal.read(run_state).progress == ProgressReport(steps_trained=5, training_done=True, reason="stopped")


def test_a_new_registration_starts_at_its_starting_step(journal) -> None:
    journal.write(record_progress, ProgressReport(steps_trained=8, training_done=True, checkpoint_step=8))
    journal.write(register, build.registration(starting_step=7), [])
    state = journal.read(run_state)
    assert (state.progress, state.covered_step) == (ProgressReport(steps_trained=7), 7)


def test_a_new_registration_removes_lost_leases(journal) -> None:
    for role in ("trainer", "environment"):
        journal.write(record_lease, role, LeaseReport(state="failed", reason="it broke"))
    journal.write(register, build.registration(), ["environment"])
    assert list(journal.read(run_state).leases) == ["trainer"]


async def test_counts_are_reread_only_after_a_commit(api) -> None:
    await api.post("/scored_data", build.group())
    first = api.service.group_counts()
    assert api.service.group_counts() is first
    await api.post("/scored_data", build.group(first_token=9))
    assert [(count.state, count.groups) for count in api.service.group_counts()] == [("queued", 2)]
