"""Contexts per token: whose rights, for how long, and what happens to unused ones; and the file of tokens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, serving, write_kubeconfig

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.operator_errors import RefusedError, TargetUnreachableError, UnauthenticatedError
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.target_loop import LoopThread
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.caller_sessions import (
    TRUSTED_SECONDS,
    ClusterSessions,
    is_among,
    make_token,
    read_tokens,
)

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RUNS = "/apis/rl-operator.dev/v1alpha1/namespaces/default/rltrainingruns"


def reviewed(username: str) -> Answer:
    return Answer({"status": {"userInfo": {"username": username}}}, 201)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake:
        fake.answers("GET", RUNS, Answer({"items": [], "metadata": {"resourceVersion": "1"}}))
        yield fake


@pytest.fixture
def counted_target(api: FakeApi, tmp_path: Path) -> Iterator[ClusterTarget]:
    """With its own credentials, which must not be used for a caller's request."""
    opened: list[ClusterTarget] = []

    class Counted(ClusterTarget):
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


def context_for(acting: Any) -> CallContext:
    return CallContext(acting, acting.namespace)


def list_runs(sessions: ClusterSessions, token: str) -> str:
    """Who the context takes the caller for."""
    with sessions.context(token) as context:
        list(context.target.runs("default", ""))
        return context.target.caller


async def test_each_caller_is_known_only_by_their_own_token(api: FakeApi, counted_target: ClusterTarget) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), reviewed("ben"))
    sessions = ClusterSessions(counted_target, context_for)
    assert await asyncio.to_thread(list_runs, sessions, "token-of-ann") == "ann"
    assert await asyncio.to_thread(list_runs, sessions, "token-of-ben") == "ben"
    assert await asyncio.to_thread(list_runs, sessions, "token-of-ann") == "ann"
    sent = [request.headers["Authorization"] for request in api.requests]
    assert sent == ["Bearer token-of-ann"] * 2 + ["Bearer token-of-ben"] * 2 + ["Bearer token-of-ann"]


async def test_after_a_minute_the_api_server_is_asked_again(api: FakeApi, counted_target: ClusterTarget) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), Answer({"message": "Unauthorized"}, 401))
    seconds = 0.0
    sessions = ClusterSessions(counted_target, context_for, now=lambda: seconds)
    await asyncio.to_thread(list_runs, sessions, "token")
    seconds = TRUSTED_SECONDS - 1
    assert sessions.knows("token")
    await asyncio.to_thread(list_runs, sessions, "token")
    seconds = TRUSTED_SECONDS
    assert (sessions.knows("token"), sessions.has_met("token")) == (False, True)
    with pytest.raises(UnauthenticatedError, match="does not know the token, or it has expired"):
        await asyncio.to_thread(list_runs, sessions, "token")
    assert not sessions.has_met("token")


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        pytest.param(Answer({"message": "no"}, 401), UnauthenticatedError, "does not know the token", id="unknown"),
        pytest.param(reviewed("system:anonymous"), UnauthenticatedError, "does not know this token", id="anonymous"),
        pytest.param(Answer({"message": "busy"}, 503), TargetUnreachableError, "busy", id="away"),
    ],
)
async def test_an_unknown_caller_has_no_context(
    api: FakeApi, counted_target: ClusterTarget, answer: Answer, error: type[Exception], sentence: str
) -> None:
    api.answers("POST", REVIEWS, answer)
    sessions = ClusterSessions(counted_target, context_for)
    with pytest.raises(error, match=sentence):
        await asyncio.to_thread(list_runs, sessions, "token")
    assert not sessions.knows("token")
    assert len(api.requests) == 1


async def test_an_evicted_context_closes_when_its_caller_has_left(api: FakeApi, counted_target: ClusterTarget) -> None:
    api.answers("POST", REVIEWS, reviewed("ann"), reviewed("ben"), reviewed("ann"))
    sessions = ClusterSessions(counted_target, context_for, most=1)

    def crowd_out() -> Any:
        with sessions.context("token-of-ann") as context:
            list_runs(sessions, "token-of-ben")
            assert not sessions.knows("token-of-ann")
            list(context.target.runs("default", ""))  # still open
            return context.target

    left = await asyncio.to_thread(crowd_out)
    with pytest.raises(RuntimeError, match="Session is closed"):
        await asyncio.to_thread(lambda: list(left.runs("default", "")))
    assert await asyncio.to_thread(list_runs, sessions, "token-of-ann") == "ann"


TOKEN = "0123456789abcdef"


def test_a_created_token_belongs_to_its_owner_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "tools-token"
    make_token(path)
    said: list[str] = []
    [token] = read_tokens(path, said.append)
    make_token(path)
    assert read_tokens(path, said.append) == (token,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (len(token) > 40, said) == (True, [])


def test_a_token_file_has_one_token_per_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# of the reviewer\n{TOKEN}\n\n  {TOKEN}+/=  \n")
    path.chmod(0o644)
    said: list[str] = []
    tokens = read_tokens(path, said.append)
    assert tokens == (TOKEN, f"{TOKEN}+/=")
    assert said == [f"others on this machine may read the tokens in {path}: chmod 600 {path}"]
    assert is_among(TOKEN, tokens)
    assert not is_among(TOKEN[:-1], tokens)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("\n# none\n", "is empty: write one token per line", id="empty"),
        pytest.param(
            f"{TOKEN}\nshort\n", "line 2 of .* is not a token: a token has at least 16 characters", id="short"
        ),
        pytest.param("two words of a sentence\n", "line 1 of .* is not a token", id="words"),
        pytest.param(None, "cannot be read", id="missing"),
    ],
)
def test_other_files_are_refused_without_being_shown(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    with pytest.raises(RefusedError, match=sentence) as refused:
        read_tokens(path, lambda _: None)
    assert "short" not in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_a_token_that_cannot_be_kept_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match=r"token file .*--token-file"):
        make_token(tmp_path / "file" / "token")
