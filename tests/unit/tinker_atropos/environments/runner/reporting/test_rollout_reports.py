"""What waits to be shown is bounded, counted, and sent in reports: real connections to a scripted trainer."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.ports import free_port
from tests.unit.tinker_atropos.environments.runner.reporting.leasing_api import LeasingApi

from tinker_atropos.environments.runner.reporting import rollout_reports
from tinker_atropos.environments.runner.reporting.rollout_reports import (
    DROPPED_PER_STEP,
    MAX_BYTES,
    MAX_GROUPS,
    MAX_LOST,
    MAX_WAITING,
    MAX_WHY,
    RolloutReports,
    RolloutSender,
    reports,
)
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport

GROUP: dict[str, Any] = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}


def test_what_is_taken_waits_no_longer() -> None:
    reports = RolloutReports()
    reports.evaluated(3, GROUP, ("main", "hard"), [1.0], greedy=True)
    reports.dropped(4, "equal", "all the same", GROUP)
    reports.lost("rollout", "timeout", "30 s", 7)
    groups, lost = reports.take()
    assert groups == [
        {"fate": "evaluated", "step": 3, "group": GROUP, "sets": ["main", "hard"], "worth": [1.0], "greedy": True},
        {"fate": "dropped", "reason": "equal", "why": "all the same", "group": GROUP},
    ]
    assert lost == [{"what": "rollout", "reason": "timeout", "why": "30 s", "count": 1, "tokens": 7}]
    assert reports.take() == ([], [])


def test_losses_in_a_row_are_one() -> None:
    reports = RolloutReports()
    for tokens in (7, 0, 3):
        reports.lost("rollout", "timeout", "30 s", tokens)
    reports.lost("group", "timeout", "30 s")
    reports.lost("rollout", "timeout", "30 s")
    assert [(each["what"], each["count"], each.get("tokens")) for each in reports.take()[1]] == [
        ("rollout", 3, 10),
        ("group", 1, None),
        ("rollout", 1, None),
    ]


def test_of_many_dropped_groups_a_few_are_sent_whole_and_the_others_are_counted() -> None:
    reports = RolloutReports()
    for _ in range(DROPPED_PER_STEP + 5):
        reports.dropped(4, "equal", "all the same", GROUP)
    groups, lost = reports.take()
    assert len(groups) == DROPPED_PER_STEP
    assert lost == [{"what": "group", "reason": "equal", "why": "all the same", "count": 5}]
    reports.dropped(4, "equal", "all the same", GROUP)
    reports.dropped(5, "equal", "all the same", GROUP)
    groups, lost = reports.take()
    assert (len(groups), len(lost)) == (1, 1), "of each step"


def test_a_group_that_is_none_is_counted() -> None:
    reports = RolloutReports()
    reports.dropped(1, "wrong_size", "some are missing", "oops")
    assert reports.take() == ([], [{"what": "group", "reason": "wrong_size", "why": "some are missing", "count": 1}])


def test_a_trainer_that_takes_nothing_costs_bounded_memory() -> None:
    reports = RolloutReports()
    for number in range(2 * MAX_LOST):
        reports.lost("rollout", "raised", f"{number}: " + "x" * 10_000)
    groups, lost = reports.take()
    assert (len(groups), len(lost)) == (0, MAX_LOST)
    assert {len(each["why"]) for each in lost} == {MAX_WHY}


def test_groups_that_find_no_room_are_counted() -> None:
    """A mean over those that were kept would be no accuracy: readers must know that there were more."""
    reports = RolloutReports()
    for _ in range(MAX_WAITING + 10):
        reports.evaluated(3, GROUP)
    reports.dropped(4, "equal", "all alike", GROUP)
    groups, lost = reports.take()
    assert len(groups) == MAX_WAITING
    assert [(each["reason"], each["count"]) for each in lost] == [("not_kept", 10), ("equal", 1)]


def test_a_sentence_with_bytes_that_are_not_text() -> None:
    reports = RolloutReports()
    reports.lost("rollout", "raised", "no file b\udce4r")
    reports.lost("rollout", "raised", "no file b\udce4r")
    assert [(each["why"], each["count"]) for each in reports.take()[1]] == [("no file b?r", 2)]


def test_nothing_is_lost_between_two_threads() -> None:
    reports, taken, count = RolloutReports(), [], 3000
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            taken.append(reports.take())

    taking = threading.Thread(target=take)
    taking.start()
    for step in range(count):
        reports.lost("rollout", "raised", "no", 1)
        if not step % 10:
            reports.evaluated(step, {"tokens": np.ones((1, 2))})
    done.set()
    taking.join(60)
    taken.append(reports.take())
    assert sum(each["count"] for _, lost in taken for each in lost) == count
    assert sum(each["tokens"] for _, lost in taken for each in lost) == count
    assert [group["step"] for groups, _ in taken for group in groups] == list(range(0, count, 10))


@dataclass
class ScriptedTrainer:
    """Takes what `RolloutReport` takes; answers all with `status` if it has one, and nothing while it `hangs`."""

    status: int | None = None
    hangs: asyncio.Event | None = None
    taken: list[RolloutReport] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    async def take(self, request: Request) -> Response:
        body = await request.body()
        self.sizes.append(len(body))
        if self.hangs is not None:
            await self.hangs.wait()
        if self.status is not None:
            return Response("no", self.status)
        try:
            self.taken.append(RolloutReport.model_validate_json(body))
        except ValueError as error:
            return Response(str(error), 400)
        return json_response({})

    @property
    def groups(self) -> list[Any]:
        return [group for report in self.taken for group in report.groups]


@contextlib.asynccontextmanager
async def rollout_sender_to(trainer: ScriptedTrainer) -> AsyncIterator[tuple[RolloutSender, RolloutReports]]:
    app, reports = Starlette(routes=[Route("/secret/rl/rollouts", trainer.take, methods=["POST"])]), RolloutReports()
    async with serve(app, bind("127.0.0.1", 0, "RL_INFERENCE_URL")) as port:
        sender = RolloutSender(f"http://127.0.0.1:{port}/secret", reports, 1)
        async with contextlib.aclosing(sender._client):
            yield sender, reports


async def test_all_that_waits_is_sent_in_reports_of_bounded_size() -> None:
    trainer = ScriptedTrainer()
    async with rollout_sender_to(trainer) as (sender, reports):
        await sender.send()
        assert trainer.sizes == [], "nothing waits"
        for step in range(2 * MAX_GROUPS + 3):
            reports.evaluated(step, GROUP | {"tokens": np.array([[1, 2]])})
        reports.lost("rollout", "raised", "no", 3)
        await sender.send()
    assert [len(report.groups) for report in trainer.taken] == [0, MAX_GROUPS, MAX_GROUPS, 3]
    assert [group.step for group in trainer.groups] == list(range(2 * MAX_GROUPS + 3))
    assert {report.environment for report in trainer.taken} == {1}
    assert [(lost.what, lost.tokens) for lost in trainer.taken[0].lost] == [("rollout", 3)]


def test_a_report_is_as_large_as_one_group_or_as_the_limit() -> None:
    small, half, large = b"s", b"h" * (MAX_BYTES // 2), b"l" * (2 * MAX_BYTES)
    sizes = [[len(group) for group in report] for report in reports([small, half, half, large, small, small])]
    assert sizes == [[1, len(half)], [len(half)], [len(large)], [1, 1]]


async def test_a_group_that_is_none_costs_only_itself(caplog) -> None:
    """BaseEnv drops what is no group as `wrong_size`, and sends what it is given."""
    trainer = ScriptedTrainer()
    strange = [{"scores": [1.0]}, GROUP | {"scores": ["no number"]}, GROUP | {"messages": object()}]
    async with rollout_sender_to(trainer) as (sender, reports):
        for step, group in enumerate([GROUP, *strange, GROUP]):
            reports.evaluated(step, group)
        await sender.send()
    assert [group.step for group in trainer.groups] == [0, 4]
    assert len(caplog.records) == 1
    assert "cannot be shown" in caplog.text


@pytest.mark.parametrize("status", [400, 404, 413, 500, 503])
async def test_a_trainer_that_refuses_is_told_nothing_twice(status, caplog) -> None:
    """An older one does not know the route."""
    trainer = ScriptedTrainer(status)
    async with rollout_sender_to(trainer) as (sender, reports):
        for _ in range(3):
            reports.evaluated(1, GROUP)
            await sender.send()
        trainer.status = None
        reports.evaluated(2, GROUP)
        await sender.send()
    assert [group.step for group in trainer.groups] == [2]
    assert len(caplog.records) == 1
    assert f"({status}: no)" in caplog.text


@pytest.mark.parametrize(("status", "why"), [(413, "too large"), (429, "more was reported")])
async def test_groups_that_are_not_read_are_counted(status, why) -> None:
    trainer = ScriptedTrainer(status)
    async with rollout_sender_to(trainer) as (sender, reports):
        for step in range(3):
            reports.evaluated(step, GROUP)
        await sender.send()
        trainer.status = None
        await sender.send()
    [report] = trainer.taken
    assert [(lost.what, lost.reason, lost.count) for lost in report.lost] == [("group", "not_kept", 3)]
    assert why in report.lost[0].why


async def test_a_trainer_that_is_not_there(caplog) -> None:
    reports = RolloutReports()
    sender = RolloutSender(f"http://127.0.0.1:{free_port()}", reports, 0)
    async with contextlib.aclosing(sender._client):
        for _ in range(2):
            reports.evaluated(1, GROUP)
            await sender.send()
    assert reports.take() == ([], [])
    assert len(caplog.records) == 1


async def test_a_trainer_that_hangs(monkeypatch, caplog) -> None:
    monkeypatch.setattr(rollout_reports, "TIMEOUT_SECONDS", 0.05)
    trainer = ScriptedTrainer(hangs=asyncio.Event())
    async with rollout_sender_to(trainer) as (sender, reports):
        reports.evaluated(1, GROUP)
        await sender.send()
        trainer.hangs.set()
    assert "ReadTimeout" in caplog.text


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_last_rollouts_are_sent_before_the_end_is_reported(hangs, monkeypatch) -> None:
    """With a trainer that hangs, the end is reported all the same."""
    monkeypatch.setattr("tinker_atropos.environments.runner.reporting.heartbeat.ROLLOUTS_SECONDS", 0.2 if hangs else 60)
    trainer, shared = ScriptedTrainer(hangs=asyncio.Event() if hangs else None), SharedState(5)
    api = LeasingApi(routes=[Route("/rl/rollouts", trainer.take, methods=["POST"])])
    async with api.told_by(shared) as heartbeat:
        shared.rollouts.evaluated(5, GROUP)
        await heartbeat.conclude("done")
        assert [group.step for group in trainer.groups] == ([] if hangs else [5])
        assert api.states[-1] == "done"
        if trainer.hangs:
            trainer.hangs.set()
