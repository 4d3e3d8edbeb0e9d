"""The heartbeat over real HTTP, with a scripted api."""

import asyncio
import time

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.unit.tinker_atropos.environments.runner.reporting.leasing_api import LeasingApi

from tinker_atropos.environments.runner.reporting.heartbeat import SILENCE_SECONDS, HeartbeatAnswer, heartbeat_running
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.errors import InternalError, RunError
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.settings import Settings


async def test_the_last_metrics_and_state_are_resent_if_they_are_lost():
    """They contain the final evaluation, and no later heartbeat would repeat it."""
    api, shared = LeasingApi(failures=2), SharedState(total_steps=5)
    async with api.told_by(shared) as heartbeat:
        shared.metrics.put({"eval/percent_correct": 0.5}, 5, "evaluation")
        await heartbeat.conclude("done")
    assert api.reports[0]["metrics"] == {"eval/percent_correct": 0.5}
    assert api.states[-1] == "done"
    assert api.failures == 0


async def test_time_in_which_the_trainer_is_paused_is_counted() -> None:
    api, shared = LeasingApi(), SharedState(total_steps=5)
    async with api.told_by(shared) as heartbeat:
        await heartbeat.tell()
        assert heartbeat.seconds_paused == 0
        api.trainer_reason = "Paused by the backend since 10:41 UTC: short on capacity."
        await heartbeat.tell()
        paused = heartbeat.seconds_paused
        assert paused > 0
        api.trainer_reason = None
        await heartbeat.tell()
        assert heartbeat.seconds_paused >= paused
        assert heartbeat.answer is not None
        assert not heartbeat.answer.paused


async def test_important_reports_are_sent_before_the_next_heartbeat():
    api, shared = LeasingApi(failures=1), SharedState(total_steps=5)
    async with api.told_by(shared) as heartbeat:
        shared.metrics.put({"eval/percent_correct": 0.5}, 0, "evaluation")
        await heartbeat.tell()  # the first post is answered with 500
        await heartbeat.tell()
        assert api.reports[0]["metrics"] == {"eval/percent_correct": 0.5}


@pytest.mark.parametrize(("given", "told", "replaced"), [(2, 2, True), (0, 0, True), (None, 0, False)])
async def test_every_heartbeat_and_report_names_its_environment(given, told, replaced):
    api, shared = LeasingApi(), SharedState(total_steps=5)
    async with api.told_by(shared, given) as heartbeat:
        shared.metrics.put({"a": 1}, 5, "runner")
        await heartbeat.conclude("done")
    assert {(lease["index"], lease["replaced"]) for lease in api.leases} == {(told, replaced)}
    (own_id,) = {lease["id"] for lease in api.leases}
    assert len(own_id) == 32
    assert {report["environment"] for report in api.reports} == {told}


async def test_giving_up_on_a_refusal_quotes_it() -> None:
    """Like an api that admits no more environments: another one may end soon, so it does not give up at once."""

    async def refuse(_request: Request) -> Response:
        return json_response({"detail": "64 environments are live"}, 409)

    errors: list[RunError | None] = []
    app = Starlette(routes=[Route("/rl/lease/environment", refuse, methods=["PUT"])])
    async with serve(app, bind("127.0.0.1", 0, "RL_API_URL")) as port:
        settings = Settings(api_url=f"http://127.0.0.1:{port}", ops_host="127.0.0.1", ops_port=0)
        async with heartbeat_running(settings, SharedState(total_steps=5), errors.append) as heartbeat:
            await heartbeat.tell()
            assert errors == []
            heartbeat._last_answer_at = time.monotonic() - SILENCE_SECONDS - 1
            while not errors:  # bounded by the test's time limit: the next heartbeat comes within a second
                await asyncio.sleep(0.01)
    assert "64 environments are live" in str(errors[0])


async def test_a_full_disk_of_the_api_is_no_silence() -> None:
    asked = asyncio.Event()

    async def full(_request: Request) -> Response:
        asked.set()
        return json_response({"detail": "no room is left"}, 507)

    errors: list[RunError | None] = []
    app = Starlette(routes=[Route("/rl/lease/environment", full, methods=["PUT"])])
    async with serve(app, bind("127.0.0.1", 0, "RL_API_URL")) as port:
        settings = Settings(api_url=f"http://127.0.0.1:{port}", ops_host="127.0.0.1", ops_port=0)
        async with heartbeat_running(settings, SharedState(total_steps=5), errors.append) as heartbeat:
            heartbeat._last_answer_at = time.monotonic() - SILENCE_SECONDS - 1
            await asyncio.wait_for(asked.wait(), 60)
            with pytest.raises(httpx.HTTPStatusError):
                await heartbeat._beat()
            assert heartbeat._last_answer_at > time.monotonic() - SILENCE_SECONDS
    assert errors == []


@pytest.mark.parametrize(
    ("first_answer_seconds", "answered", "silence", "gives_up"),
    [(600, False, 599, False), (600, False, 601, True), (600, True, 59, False), (600, True, 61, True)],
)
async def test_the_first_answer_may_take_as_long_as_the_trainer(*, first_answer_seconds, answered, silence, gives_up):
    errors: list[RunError | None] = []
    settings = Settings(api_url="http://rl-api.invalid:8000", ops_host="127.0.0.1", ops_port=0)
    async with heartbeat_running(
        settings, SharedState(total_steps=5), errors.append, first_answer_seconds
    ) as heartbeat:
        heartbeat.answer = HeartbeatAnswer(run_over=False, trainer_state="working", reason=None) if answered else None
        heartbeat._last_answer_at = time.monotonic() - silence
        heartbeat._check_silence(httpx.ConnectError("the name is not known"))
    assert {type(error) for error in errors} == ({InternalError} if gives_up else set())  # a heartbeat may say it, too
