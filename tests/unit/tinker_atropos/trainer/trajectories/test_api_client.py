"""The client against an api that is unreachable, restarts, or refuses; and the lease that it renews."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.unit.tinker_atropos.run_configs import run_config

from rl_contract.processes import TRAINER_LOST
from tinker_atropos.errors import EnvironmentLostError, InternalError, SilenceError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.trajectories import api_client
from tinker_atropos.trainer.trajectories.api_client import ApiClient
from tinker_atropos.trainer.trajectories.lease import TrainerLease


class ScriptedApi:
    """Answers each request with the next of `answers`, the last one forever; remembers the requests."""

    def __init__(self, *answers: Response) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []
        self.paths: list[str] = []

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT"])])

    async def _answer(self, request: Request) -> Response:
        if request.method == "GET" and request.url.path.startswith("/rl/lease/"):  # a held connection
            while (await request.receive())["type"] != "http.disconnect":
                pass
            return Response()
        body = await request.body()
        self.paths.append(f"{request.method} {request.url.path}?{request.url.query}".rstrip("?"))
        self.bodies.append(await request.json() if body else None)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def client_of() -> Callable[..., AbstractAsyncContextManager[ApiClient]]:
    @asynccontextmanager
    async def serving(api: ScriptedApi, retry_seconds: float = 5) -> AsyncIterator[ApiClient]:
        async with serve(api.app(), bind("127.0.0.1", 0, "RL_API_URL")) as port:
            client = ApiClient(f"http://127.0.0.1:{port}", retry_seconds)
            yield client
            await client.close()

    return serving


def lease(state: str, reason: str | None = None, total_steps: int | None = 4) -> Response:
    return JSONResponse({"peer": {"state": state, "reason": reason}, "run_over": False, "total_steps": total_steps})


async def test_a_restarting_api_is_retried(client_of) -> None:
    api = ScriptedApi(Response(status_code=503), Response(status_code=500), JSONResponse({"batch": None}))
    async with client_of(api) as client:
        assert await client.batch(3) is None
    assert len(api.bodies) == 3


async def test_an_api_that_stays_unreachable_ends_the_run_with_its_address() -> None:
    with bind("127.0.0.1", 0, "x") as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    client = ApiClient(url, retry_seconds=0.5)
    started = time.monotonic()
    with pytest.raises(InternalError, match=rf"{url} \(RL_API_URL\) was away for 0.5 s"):
        await client.batch(3)
    assert time.monotonic() - started < 10
    await client.close()


FULL = JSONResponse({"detail": "no room is left in /data (0 of 12 MB free): make some"}, 507)


async def test_a_full_disk_is_waited_for_without_end_and_told(client_of) -> None:
    """Though it is full for longer than an api may be away."""
    asked: list[bool] = []

    class Watched(ScriptedApi):
        async def _answer(self, request: Request) -> Response:
            asked.append(standstill.pause is not None)
            return await super()._answer(request)

    api = Watched(*[FULL] * 4, JSONResponse({"batch": None}))
    async with client_of(api, retry_seconds=0) as client:
        standstill = client._standstill
        assert await client.batch(3) is None
        assert standstill.resumed_at is not None
    assert asked == [False, True, True, True, True]
    assert standstill.pause is None


async def test_a_pause_lasts_as_long_as_the_lease_says_so(client_of) -> None:
    """Senders may wait while the trainer itself writes nothing."""
    full = JSONResponse({"peer": {"state": "working"}, "total_steps": 4, "no_space": "0 of 12 MB free"})
    api = ScriptedApi(full, FULL, JSONResponse({"batch": None}), lease("working"))
    async with client_of(api) as client:
        await client.renew_lease("working")
        told = client._standstill.pause
        assert (told.cause, told.reason) == ("DiskFull", "0 of 12 MB free")
        await client.batch(3)
        assert client._standstill.pause.since == told.since, "another call has found room"
        await client.renew_lease("working")
        assert client._standstill.pause is None


async def test_a_refusal_is_not_repeated(client_of) -> None:
    api = ScriptedApi(Response("steps_trained: must be at least 0", 422))
    async with client_of(api) as client:
        with pytest.raises(InternalError, match="steps_trained: must be at least 0"):
            await client.report_progress(-1, {})
    assert len(api.bodies) == 1


async def test_batches_are_parsed_at_the_border(client_of) -> None:
    group = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}
    head, line = b'{"ids": [7], "received_at": [1.5], "step": 3}', orjson.dumps(group)
    api = ScriptedApi(Response(head + b"\n" + line))
    async with client_of(api) as client:
        batch = await client.batch(3)
    assert (batch.ids, batch.groups[0].sequences_S[0].tokens_T.tolist()) == ((7,), [1, 2])
    assert api.paths == ["GET /batch?wait=5&step=3"]
    async with client_of(ScriptedApi(Response(head))) as client:
        with pytest.raises(InternalError, match="/batch gave an unexpected answer"):
            await client.batch(3)


async def test_a_batch_below_the_covered_checkpoint_is_refused_in_the_apis_words(client_of) -> None:
    api = ScriptedApi(JSONResponse({"detail": "step is 3: batches below the checkpoint of step 5 are gone"}, 409))
    async with client_of(api) as client:
        with pytest.raises(InternalError, match="batches below the checkpoint of step 5 are gone"):
            await client.batch(3)


async def test_groups_are_dropped_with_their_reason(client_of) -> None:
    api = ScriptedApi(JSONResponse({}))
    async with client_of(api) as client:
        await client.drop((7, 9), "stale")
    assert (api.paths, api.bodies) == (["POST /rl/drop"], [{"ids": [7, 9], "reason": "stale"}])


async def test_progress_includes_what_a_checkpoint_covers(client_of) -> None:
    api = ScriptedApi(JSONResponse({"current_step": 25}))
    async with client_of(api) as client:
        await client.report_progress(25, {"sampled_tokens": 9}, checkpoint_step=25, max_staleness=3)
    assert api.bodies == [
        {
            "steps_trained": 25,
            "training_done": False,
            "checkpoint_step": 25,
            "totals": {"sampled_tokens": 9},
            "max_staleness": 3,
        }
    ]


async def test_the_totals_name_what_was_dropped_and_why(client_of) -> None:
    account = {"received": 5, "queued": 1, "trained": 2, "dropped": {"stale": 2}, "refused": {"masks": 1}}
    async with client_of(ScriptedApi(JSONResponse({"groups": account, "rollouts": account}))) as client:
        books = await client.books()
    assert (books.groups.dropped, books.rollouts.trained, books.groups.duplicates) == ({"stale": 2}, 2, 0)


async def test_registration_has_the_upstream_fields(client_of) -> None:
    api = ScriptedApi(JSONResponse({"uuid": 1}))
    async with client_of(api) as client:
        config = run_config(
            {"batch_size": 32}, max_token_trainer_length=512, save_checkpoint_interval=25, wandb_project="project",
            wandb_group="group",
        )  # fmt: skip
        await client.register(config, 10, vocabulary=512, max_staleness=8, environment_state=None, items=None)
    assert api.bodies == [
        {
            "batch_size": 32,
            "max_token_len": 512,
            "num_steps": 40,
            "starting_step": 10,
            "save_checkpoint_interval": 25,
            "checkpoint_dir": "./temp/",
            "wandb_project": "project",
            "wandb_group": "group",
            "max_staleness": 8,
            "vocabulary": 512,
            "environment_state": None,
            "items": None,
        }
    ]


@pytest.mark.parametrize(
    ("state", "reason", "error", "message"),
    [
        ("failed", "ValueError: boom", EnvironmentLostError, "the environment failed: ValueError: boom"),
        ("lost", "no heartbeat for 15 s", SilenceError, "the environment fell silent: no heartbeat for 15 s"),
        ("done", None, EnvironmentLostError, "the environment ended before the training was done"),
        ("done", f"{TRAINER_LOST}: no heartbeat", SilenceError, f"training was done: {TRAINER_LOST}: no heartbeat"),
    ],
)
async def test_an_environment_that_ends_early_is_noticed(client_of, state, reason, error, message) -> None:
    api = ScriptedApi(lease("absent"), lease("working"), lease(state, reason))
    async with client_of(api) as client:
        held = TrainerLease(client)
        keeping = asyncio.create_task(held.keep())
        with pytest.raises(error, match=message):
            await asyncio.wait_for(held.environment_lost(), 20)
        keeping.cancel()
    assert {body["state"] for body in api.bodies} == {"starting"}


async def test_after_the_training_the_environment_has_time_to_evaluate(client_of) -> None:
    api = ScriptedApi(lease("working"), lease("working"), lease("done"))
    async with client_of(api) as client:
        held = TrainerLease(client)
        keeping = asyncio.create_task(held.keep())
        peer = await held.environment_finished(seconds=20, seconds_if_absent=20)
        keeping.cancel()
    assert peer.state == "done"


@pytest.mark.parametrize("state", ["absent", "working"])
async def test_the_wait_for_an_evaluation_is_bounded(client_of, state) -> None:
    async with client_of(ScriptedApi(lease(state))) as client:
        held = TrainerLease(client)
        keeping = asyncio.create_task(held.keep())
        seconds = 0.3 if state == "working" else 20
        peer = await held.environment_finished(seconds=seconds, seconds_if_absent=0.3)
        keeping.cancel()
    assert peer.state == state


async def test_the_last_report_carries_the_reason(client_of) -> None:
    api = ScriptedApi(lease("working"))
    async with client_of(api) as client:
        await TrainerLease(client).end("failed", "the backend is gone")
    assert api.bodies == [{"state": "failed", "reason": "the backend is gone", "ttl_seconds": 15}]


async def test_an_api_that_returned_with_an_empty_journal_is_noticed(client_of) -> None:
    api = ScriptedApi(lease("absent", total_steps=None), lease("working"), lease("absent", total_steps=None))
    async with client_of(api) as client:
        held = TrainerLease(client)
        await held.end("starting", None)  # not registered yet: nothing is missing
        held.state = "working"
        with pytest.raises(InternalError, match="came back with an empty journal"):
            await asyncio.wait_for(held.keep(), 20)


async def test_an_api_that_takes_requests_and_answers_none_is_waited_for(monkeypatch) -> None:
    """For longer than one that is away: it may be frozen."""
    monkeypatch.setattr(api_client, "SILENT_SECONDS", 1.5)
    with bind("127.0.0.1", 0, "x") as silent:
        silent.listen()
        client = ApiClient(f"http://127.0.0.1:{silent.getsockname()[1]}", retry_seconds=0.1)
        client._client.timeout = 0.3
        with pytest.raises(SilenceError, match=r"none for 1\.5 s \(GET /batch\): frozen"):
            await client.batch(3)
        await client.close()
