"""Desks per token: whose rights, for how long, and what becomes of those that are no longer needed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, serving, write_kubeconfig

from rl_operator.backends.cluster import ClusterBackEnd
from rl_operator.backends.loop import LoopThread
from rl_operator.cluster.client import ClusterClient
from rl_operator.errors import BackEndUnreachableError, UnauthenticatedError
from rl_operator.tools.callers import TRUSTED_SECONDS, ClusterCallers
from rl_operator.tools.desk import Desk

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RUNS = "/apis/rl-operator.dev/v1alpha1/namespaces/default/rltrainingruns"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def reviewed(username: str) -> Answer:
    return Answer({"status": {"userInfo": {"username": username}}}, 201)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake:
        fake.answers("GET", RUNS, Answer({"items": [], "metadata": {"resourceVersion": "1"}}))
        yield fake


@pytest.fixture
def back_end(api: FakeApi, tmp_path: Path) -> Iterator[ClusterBackEnd]:
    """With credentials of its own, which no caller's request may carry."""
    opened: list[ClusterBackEnd] = []

    class Counted(ClusterBackEnd):
        def acting_as(self, token: str) -> Self:
            acting = super().acting_as(token)
            opened.append(acting)
            return acting

    loop = LoopThread()
    client = loop.wait(ClusterClient.connect(str(write_kubeconfig(tmp_path, api.url, "of-the-gateway"))))
    opened.append(Counted(loop, client, label="cluster:test", flags="", namespace="default", note=print))
    yield opened[0]
    for each in reversed(opened):
        each.close()


def desk_at(acting: Any) -> Desk:
    return Desk(acting, acting.namespace)


def list_runs(callers: ClusterCallers, token: str) -> str:
    """Who the desk takes the caller for."""
    with callers.desk(token) as desk:
        desk.backend.runs("default", "")
        return desk.backend.caller


async def test_each_caller_is_known_by_their_own_token_alone(api: FakeApi, back_end: ClusterBackEnd) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), reviewed("ben"))
    callers = ClusterCallers(back_end, desk_at)
    assert await asyncio.to_thread(list_runs, callers, "token-of-ann") == "ann"
    assert await asyncio.to_thread(list_runs, callers, "token-of-ben") == "ben"
    assert await asyncio.to_thread(list_runs, callers, "token-of-ann") == "ann"
    sent = [request.headers["Authorization"] for request in api.requests]
    assert sent == ["Bearer token-of-ann"] * 2 + ["Bearer token-of-ben"] * 2 + ["Bearer token-of-ann"]


async def test_after_a_minute_the_api_server_is_asked_again(api: FakeApi, back_end: ClusterBackEnd) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), Answer({"message": "Unauthorized"}, 401))
    clock = Clock()
    callers = ClusterCallers(back_end, desk_at, now=clock)
    await asyncio.to_thread(list_runs, callers, "token")
    clock.seconds = TRUSTED_SECONDS - 1
    assert callers.knows("token")
    await asyncio.to_thread(list_runs, callers, "token")
    clock.seconds = TRUSTED_SECONDS
    assert not callers.knows("token")
    with pytest.raises(UnauthenticatedError, match="does not know the token, or it has expired"):
        await asyncio.to_thread(list_runs, callers, "token")


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        pytest.param(Answer({"message": "no"}, 401), UnauthenticatedError, "does not know the token", id="unknown"),
        pytest.param(
            reviewed("system:anonymous"), UnauthenticatedError, "takes the token for nobody's", id="anonymous"
        ),
        pytest.param(Answer({"message": "busy"}, 503), BackEndUnreachableError, "busy", id="away"),
    ],
)
async def test_who_is_not_known_has_no_desk(
    api: FakeApi, back_end: ClusterBackEnd, answer: Answer, error: type[Exception], sentence: str
) -> None:
    api.answers("POST", REVIEWS, answer)
    callers = ClusterCallers(back_end, desk_at)
    with pytest.raises(error, match=sentence):
        await asyncio.to_thread(list_runs, callers, "token")
    assert not callers.knows("token")
    assert len(api.requests) == 1


async def test_a_desk_that_is_given_away_closes_when_its_caller_has_left(
    api: FakeApi, back_end: ClusterBackEnd
) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), reviewed("ben"), reviewed("ann"))
    callers = ClusterCallers(back_end, desk_at, most=1)

    def crowd_out() -> Any:
        with callers.desk("token-of-ann") as desk:
            list_runs(callers, "token-of-ben")
            assert not callers.knows("token-of-ann")
            desk.backend.runs("default", "")  # still open
            return desk.backend

    left = await asyncio.to_thread(crowd_out)
    with pytest.raises(RuntimeError, match="Session is closed"):
        await asyncio.to_thread(left.runs, "default", "")
    assert await asyncio.to_thread(list_runs, callers, "token-of-ann") == "ann"
