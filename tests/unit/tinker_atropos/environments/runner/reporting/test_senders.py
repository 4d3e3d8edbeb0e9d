"""Groups on their way to the trajectory API: real connections to a scripted server."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.ports import free_port

from tinker_atropos.environments.runner.reporting import senders
from tinker_atropos.environments.runner.reporting.counters import HOPELESS_AFTER, Counters
from tinker_atropos.environments.runner.reporting.heartbeat import heartbeat_running
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutReports
from tinker_atropos.environments.runner.reporting.senders import (
    MAX_BYTES,
    MAX_GROUPS,
    GroupSender,
    RolloutSender,
    reports,
)
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.errors import EnvironmentLostError
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport

ENV = SimpleNamespace(env_id=3)
RECEIVED = (200, {"status": "received"})
CONNECTION_LOST = (0, {})


@dataclass
class ScriptedApi:
    """Answers with the script's answers, then always with the last one. Keeps the requests."""

    script: list[tuple[int, dict[str, Any]]]
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    connections: list[asyncio.Task[None] | None] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError):  # the client is gone
            while True:
                await self._answer_one(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def until_all_have_left(self) -> None:
        await asyncio.gather(*filter(None, self.connections))

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
        self.paths.append(request.split()[1])
        self.keys.append(headers["idempotency-key"])
        self.bodies.append(json.loads(gzip.decompress(body) if "content-encoding" in headers else body))
        status, answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not status:
            raise asyncio.IncompleteReadError(b"", None)
        content = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))
        await writer.drain()


@contextlib.asynccontextmanager
async def sender_to(
    *script: tuple[int, dict[str, Any]],
) -> AsyncIterator[tuple[ScriptedApi, GroupSender, Counters, list]]:
    api, counters, given_up = ScriptedApi(list(script)), Counters(), list[EnvironmentLostError]()
    async with await asyncio.start_server(api.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = GroupSender(f"http://127.0.0.1:{port}", counters, given_up.append)
        async with contextlib.aclosing(sender._client):
            yield api, sender, counters, given_up
        await api.until_all_have_left()


async def test_a_group_is_sent_with_its_environment_and_its_own_key() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, {"tokens": np.array([[1, 2]])})
        await sender.send(ENV, {"tokens": [[1] * 2000]})
    assert api.paths == ["/scored_data"] * 2
    stamp = {"env_id": 3, "group_overrides": {"environment": 0}}
    assert api.bodies == [{"tokens": [[1, 2]], **stamp}, {"tokens": [[1] * 2000], **stamp}]
    assert len(set(api.keys)) == 2
    assert (counters.kept, counters.accepted, counters.refused) == (2, 2, 0)


@pytest.mark.parametrize("trouble", [(503, {"detail": "full"}), (500, {}), CONNECTION_LOST])
async def test_a_repeat_carries_the_same_key(trouble) -> None:
    async with sender_to(trouble, RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, [{"tokens": [[1]]}, {"tokens": [[2]]}])
    assert api.paths == ["/scored_data_list"] * 2
    assert (len(set(api.keys)), api.bodies[0]) == (1, api.bodies[1])
    assert counters.accepted == 2


async def test_a_refused_group_is_counted_and_not_sent_again() -> None:
    async with sender_to((422, {"detail": "scores has 1 entries"})) as (api, sender, counters, _):
        await sender.send(ENV, {"scores": [1.0]})
    assert (len(api.keys), counters.accepted, counters.refused) == (1, 0, 1)
    assert counters.last_failure == '422: {"detail": "scores has 1 entries"}'


async def test_the_good_groups_of_a_list_count_as_accepted() -> None:
    answer = {"status": "received", "groups_processed": 2, "refused": ["tokens[0] is empty"]}
    async with sender_to((200, answer)) as (_, sender, counters, _given_up):
        await sender.send(ENV, [{}, {}, {}])
    assert (counters.kept, counters.accepted, counters.refused, counters.last_failure) == (
        3,
        2,
        1,
        "tokens[0] is empty",
    )


async def test_a_value_that_is_not_json_is_refused_here() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, {"tokens": [[1]], "images": object()})
    assert (api.keys, counters.refused) == ([], 1)
    assert "cannot be written as JSON: Type is not JSON serializable: object" in str(counters.last_failure)


async def test_an_environment_with_only_refused_groups_gives_up() -> None:
    async with sender_to((422, {"detail": "no"})) as (_, sender, _counters, given_up):
        for _ in range(HOPELESS_AFTER):
            assert not given_up
            await sender.send(ENV, {})
        assert str(given_up[0]) == 'the trajectory API refuses every group (422: {"detail": "no"})'


GROUP: dict[str, Any] = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}


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
    monkeypatch.setattr(senders, "TIMEOUT_SECONDS", 0.05)
    trainer = ScriptedTrainer(hangs=asyncio.Event())
    async with rollout_sender_to(trainer) as (sender, reports):
        reports.evaluated(1, GROUP)
        await sender.send()
        trainer.hangs.set()
    assert "ReadTimeout" in caplog.text


class LeasingApi:
    """Takes heartbeats."""

    states: list[str]

    def __init__(self) -> None:
        self.states = []

    async def lease(self, request: Request) -> Response:
        self.states.append((await request.json())["state"])
        return json_response({"run_over": False, "peer": {"state": "working", "reason": None}})

    def routes(self) -> list[Route]:
        takes = Route("/rl/metrics", lambda _: json_response({}), methods=["POST"])
        return [Route("/rl/lease/environment", self.lease, methods=["PUT"]), takes]


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_last_rollouts_are_sent_before_the_end_is_reported(hangs, monkeypatch) -> None:
    """With a trainer that hangs, the end is reported all the same."""
    monkeypatch.setattr("tinker_atropos.environments.runner.reporting.heartbeat.ROLLOUTS_SECONDS", 0.2 if hangs else 60)
    trainer, api, shared = ScriptedTrainer(hangs=asyncio.Event() if hangs else None), LeasingApi(), SharedState(5)
    app = Starlette(routes=[*api.routes(), Route("/rl/rollouts", trainer.take, methods=["POST"])])
    async with serve(app, bind("127.0.0.1", 0, "RL_API_URL")) as port:
        url = f"http://127.0.0.1:{port}"
        settings = Settings(api_url=url, inference_url=url, ops_host="127.0.0.1", ops_port=0)
        async with heartbeat_running(settings, shared, lambda _error: None) as heartbeat:
            shared.rollouts.evaluated(5, GROUP)
            await heartbeat.conclude("done")
            assert [group.step for group in trainer.groups] == ([] if hangs else [5])
            assert api.states[-1] == "done"
        if trainer.hangs:
            trainer.hangs.set()
