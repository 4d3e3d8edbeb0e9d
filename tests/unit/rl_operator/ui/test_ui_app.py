"""Errors in words, namespaces that are not shown, and the stream of changes."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
from starlette.types import ASGIApp
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest
from tests.unit.rl_operator.ui.page_streams import PageStream

from rl_operator.operator_errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    RefusedError,
    TargetUnreachableError,
)
from rl_operator.ui.live_runs import LiveRuns, Versions
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, Visitor, make_templates


class FailingTarget(MemoryTarget):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:  # noqa: ARG002 -- of any
        raise self.error


class Scripted:
    """A different version each time."""

    def __init__(self, *answers: Versions | OperatorError) -> None:
        self.answers = list(answers)

    def __call__(self) -> Versions:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OperatorError):
            raise answer
        return answer


def app_of(target: MemoryTarget, live: LiveRuns | None = None, pinned: str | None = None) -> ASGIApp:
    visitor = Visitor(target, lambda _: live or LiveRuns(dict), pinned)  # type: ignore[arg-type]  # of the protocol, what is used
    return ui_app(UiContext(lambda _: visitor, make_templates()))


def browser_of(app: ASGIApp) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
async def app_browser() -> AsyncIterator[httpx.AsyncClient]:
    run = run_manifest()
    run["metadata"] |= {"uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z"}
    async with browser_of(app_of(MemoryTarget(run), pinned="default")) as client:
        yield client


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ForbiddenError("you may not <b>"), 403, "you may not &lt;b&gt;"),
        (RefusedError("there is none"), 404, "there is none"),
        (GoneError("it is gone"), 404, "it is gone"),
        (ConflictError("somebody was first"), 409, "somebody was first"),
        (InvalidError("it is wrong"), 400, "it is wrong"),
        (BusyError("too many"), 429, "too many"),
        (TargetUnreachableError("no answer"), 502, "no answer"),
        (KeyError("secret"), 500, "its log says more"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
async def test_errors_are_pages(error: Exception, status: int, said: str) -> None:
    async with browser_of(app_of(FailingTarget(error))) as client:
        answer = await client.get("/runs/default/sorting")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert said in answer.text
    assert "<main" in answer.text
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/runs/", 404),
        ("GET", "http://127.0.0.1//runs", 404),
        ("GET", "/static/../ui_app.py", 404),
        ("GET", "/static/%2e%2e/ui_app.py", 404),
        ("GET", "/static/%00", 404),
        ("GET", "/static/", 404),
        ("DELETE", "/runs", 405),
        ("OPTIONS", "/runs", 405),
        ("POST", "/live", 405),
    ],
)
async def test_what_is_not_there_is_said_in_the_same_look(
    app_browser: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await app_browser.request(method, path)
    assert (answer.status_code, "<main" in answer.text) == (status, True)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs", 200),
        ("/runs?namespace=default", 200),
        ("/runs?namespace=team", 403),
        ("/runs?namespace=default&namespace=team", 403),
        ("/runs/team/sorting", 403),
        ("/live?namespace=team", 403),
        ("/compare?run=team/sorting&run=default/sorting", 403),
    ],
)
async def test_a_pinned_page_shows_no_other_namespace(app_browser: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await app_browser.get(path)
    assert answer.status_code == status
    assert ("shows the namespace default alone, not team" in answer.text) is (status == 403)


async def test_the_first_address_leads_to_the_runs(app_browser: httpx.AsyncClient) -> None:
    assert (await app_browser.get("/")).headers["location"] == "/runs"


async def test_changes_are_events() -> None:
    before, after = {("default", "a"): "1"}, {("default", "a"): "2", ("team", "b"): "1"}
    async with PageStream(app_of(MemoryTarget(), LiveRuns(Scripted(before, after), 0.001)), "/live", {}) as stream:
        assert (stream.status, await stream.chunk()) == (200, ": connected\n\n")
        name, _, content = (await stream.chunk()).partition("\n")
        assert name == "event: changed"
        assert orjson.loads(content.removeprefix("data: ")) == [["default", "a"], ["team", "b"]]


async def test_a_stream_says_why_it_ends() -> None:
    live = LiveRuns(Scripted(ForbiddenError("you may not\nlist")), 0.001)
    async with PageStream(app_of(MemoryTarget(), live), "/live", {}) as stream:
        assert await stream.chunk() == ": connected\n\n"
        assert await stream.chunk() == 'event: over\ndata: "you may not\\nlist"\n\n'
        assert await stream.chunk() == ""


async def test_a_stream_that_is_left_is_forgotten() -> None:
    live = LiveRuns(dict, 0.001)
    async with PageStream(app_of(MemoryTarget(), live), "/live", {}) as stream:
        await stream.chunk()
        assert live._polling is not None
    assert live._polling is None


async def test_the_head_of_a_stream_ends(app_browser: httpx.AsyncClient) -> None:
    answer = await app_browser.head("/live")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
