"""A run's page: what it shows, what can be done there, and that nothing in it is executed."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, step
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.targets.target import Missing
from rl_operator.ui.live_runs import Listener, LiveRuns, OpenStreams
from rl_operator.ui.ui_app import ui_app
from rl_operator.ui.ui_context import UiContext, Visitor, make_templates

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\u2028\"' onload='x' {{7*7}} \x00" + "<b>" * 400_000
END_SECONDS = 60  # only ends a hang
START = "2026-01-01T00:00:00Z"
BEST = {"step": 4, "heldOut": {"value": 0.9}, "statePath": HOSTILE, "samplerPath": HOSTILE}
STATUS = {
    "phase": "Running", "message": HOSTILE, "startTime": START, "podName": "p", "attempt": 2,
    "progress": {"step": 3, "totalSteps": 10, "percent": 30},
    "attempts": [{"attempt": 1, "pod": HOSTILE, "reason": HOSTILE, "steps": 2, "ended": HOSTILE}],
    "conditions": [
        {"type": HOSTILE, "status": "True", "reason": HOSTILE, "message": HOSTILE, "lastTransitionTime": HOSTILE}
    ],
    "containers": [{"name": "trainer", "state": "Running"}, {"name": HOSTILE, "state": "Running"}],
    "best": BEST, "checkpoint": {"step": 3, "statePath": HOSTILE, "expiresAt": HOSTILE},
    "weights": {"samplerPath": HOSTILE, "expiresAt": HOSTILE},
    "failure": {"reason": HOSTILE, "container": HOSTILE, "message": HOSTILE},
    "refusals": [{"code": "WrongType", "field": HOSTILE, "given": HOSTILE, "allowed": HOSTILE, "hint": HOSTILE}],
    "wandb": {"url": "javascript:alert(1)", "state": "offline" + HOSTILE},
}  # fmt: skip


class Watched(MemoryTarget):
    """Its log and its events are anyone's text."""

    source = MemorySource({"metrics-1.jsonl.zst": frame(step(1, {}, **{"reward/mean": 0.5}))})

    def rollouts(self, run: TrainingRun, *, may_start: bool = True) -> RolloutSource:
        assert run.metadata.name
        assert not may_start, "curves alone start no pod"
        return self.source

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        assert (namespace, pod, container, tail, follow) == ("default", "p", "trainer", 200, False)
        yield from ("step 1\n", HOSTILE + "\n")

    def events(self, namespace: str, name: str, uid: str) -> list[str]:
        assert namespace == "default"
        assert uid == f"uid-{name}"
        return [f"{START}  Warning  BackendSilent         {HOSTILE}"]


class Elements(HTMLParser):
    """The tags of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def run_of(name: str = "sorting", spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    run = run_manifest(name, spec=spec, **status)
    run["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": START}
    return run


def browser_of(
    target: MemoryTarget, *, may_change: bool = True, streams: OpenStreams | None = None
) -> httpx.AsyncClient:
    visitor = Visitor(target, lambda _: LiveRuns(dict), may_change=may_change)  # type: ignore[arg-type]  # of the protocol, what is used
    app = ui_app(UiContext(lambda _: visitor, make_templates(), "/ui", streams=streams or OpenStreams()))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


@pytest.fixture
def watched_target() -> Watched:
    hostile_spec = {"config": {"system_prompt": HOSTILE, "level": 3}, "wandb": {"notes": "<i>"}}
    return Watched(run_of(**STATUS), run_of("other", spec=hostile_spec, **STATUS))


@pytest.fixture
async def run_browser(watched_target: Watched) -> AsyncIterator[httpx.AsyncClient]:
    async with browser_of(watched_target) as client:
        yield client


PAGES = (
    "/runs/default/sorting",
    "/runs/default/sorting?part=live",
    "/runs/default/sorting/log",
    "/runs/default/sorting/log?part=1&container=trainer",
    "/runs/default/other/config",
    "/runs/default/other/config?part=1",
    "/compare?run=default/sorting&run=default/other",
    "/compare?run=%3Cscript%3E",
    "/runs/default/%3Cscript%3E",
)


@pytest.mark.parametrize("path", PAGES)
async def test_nothing_in_a_page_is_executed(run_browser: httpx.AsyncClient, path: str) -> None:
    answer = await run_browser.get(path)
    elements = Elements(answer.text)
    assert all(set(each) <= {"src", "defer"} for each in elements.named("script")), "no script within a page"
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert not str(attributes.get("href")).startswith("javascript"), tag
    assert not elements.named("b")
    assert not elements.named("i")
    for hidden in ("\x1b", "\u202e", "\u2028", "\x00"):
        assert hidden not in answer.text
    assert "49" not in [text for text in answer.text.split() if text == "49"], "a template within a text"


async def test_a_long_text_does_not_make_a_large_page(run_browser: httpx.AsyncClient) -> None:
    for path in PAGES:
        answer = await run_browser.get(path)
        assert len(answer.text) < 400_000, path


@pytest.mark.parametrize(
    ("spec", "status", "action"),
    [
        ({}, {"phase": "Running", "startTime": START}, "stop"),
        ({"suspend": True}, {"phase": "Stopped", "startTime": START}, "resume"),
        ({}, {"phase": "Succeeded"}, None),
    ],
)
async def test_the_button_is_what_can_be_done(spec: dict[str, Any], status: dict[str, Any], action: str | None) -> None:
    async with browser_of(Watched(run_of(spec=spec, **status))) as browser:
        page = Elements((await browser.get("/runs/default/sorting")).text)
    posts = [each["action"] for each in page.named("form") if each.get("method") == "post"]
    assert posts == ([f"/ui/runs/default/sorting/{action}"] if action else [])


async def test_whoever_may_change_nothing_has_no_button(watched_target: Watched) -> None:
    async with browser_of(watched_target, may_change=False) as browser:
        page = Elements((await browser.get("/runs/default/sorting")).text)
    assert [each for each in page.named("form") if each.get("method") == "post"] == []


async def test_stop_and_resume(watched_target: Watched, run_browser: httpx.AsyncClient) -> None:
    stopped = await run_browser.post("/runs/default/sorting/stop")
    assert (stopped.status_code, stopped.headers["location"]) == (303, "/ui/runs/default/sorting")
    assert watched_target.objects["default", "sorting"]["spec"]["suspend"] is True
    await run_browser.post("/runs/default/sorting/resume")
    assert watched_target.objects["default", "sorting"]["spec"]["suspend"] is False
    assert (await run_browser.get("/runs/default/sorting/stop")).status_code == 405


class Installing(Watched):
    """Its run needs packages, and cannot start before `may_end`."""

    def __init__(self) -> None:
        super().__init__(run_of(spec={"suspend": True}, phase="Stopped", startTime=START))
        self.packages = (Missing("packages", "requirements.txt", "", "", needed=True),)
        self.may_end, self.fault = threading.Event(), ""

    def change_spec(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        assert self.may_end.wait(END_SECONDS)
        if self.fault:
            raise RefusedError(self.fault)
        return super().change_spec(*arguments, **named)


async def told(listener: Listener) -> None:
    assert await asyncio.wait_for(listener.next(), END_SECONDS) == {("default", "sorting")}


@pytest.mark.parametrize("fault", ["", "pip could not\ninstall <numpi>"])
async def test_a_run_that_needs_packages_is_answered_at_once(fault: str) -> None:
    target, streams, listener = Installing(), OpenStreams(), Listener()
    target.fault = fault
    async with browser_of(target, streams=streams) as browser:
        with streams.opened(listener):
            assert (await browser.post("/runs/default/sorting/resume")).status_code == 303
            page = (await browser.get("/runs/default/sorting?part=live")).text
            assert re.search(r"Its packages are being installed, \S+ so far<", page)
            assert "<form" not in page
            target.may_end.set()
            await told(listener)
        page = (await browser.get("/runs/default/sorting?part=live")).text
    assert target.objects["default", "sorting"]["spec"]["suspend"] is bool(fault)
    assert ("It did not start: pip could not install &lt;numpi&gt;" in page) == bool(fault)
    assert f"/runs/default/sorting/{'resume' if fault else 'stop'}" in page


async def test_what_is_over_cannot_be_stopped() -> None:
    async with browser_of(Watched(run_of(phase="Failed"))) as browser:
        answer = await browser.post("/runs/default/sorting/stop")
    assert (answer.status_code, "there is nothing to stop" in answer.text) == (404, True)


async def test_points_are_what_a_page_lacks(run_browser: httpx.AsyncClient) -> None:
    first = (await run_browser.get("/runs/default/sorting/points")).json()
    assert (first["tables"]["steps"]["step"], first["tables"]["steps"]["columns"]["loss"]) == ([1], [None])
    assert {mark["sign"] for mark in first["marks"]} >= {"!", "B", "C", "E1"}
    more = (await run_browser.get("/runs/default/sorting/points?after=1&attempt=1")).json()
    assert (more["whole"], more["tables"]["steps"]["step"]) == (False, [])


@pytest.mark.parametrize("query", ["after=-5", "after=x&attempt=1e9", "after=99999999999", "after=%00", "attempt=²"])
async def test_strange_questions_are_answered(run_browser: httpx.AsyncClient, query: str) -> None:
    answer = await run_browser.get(f"/runs/default/sorting/points?{query}")
    assert (answer.status_code, answer.json()["whole"]) == (200, True)


async def test_the_config_says_who_decided_and_can_be_copied(run_browser: httpx.AsyncClient) -> None:
    page = (await run_browser.get("/runs/default/sorting/config")).text
    assert "rlctl run sorting.yaml --memory" in page
    assert "environment: sort_digits" in page
    assert "config.group_size" in page
    for origin in ("set", "default", "locked", "wired"):
        assert f"<td>{origin}</td>" in page, origin


@pytest.mark.parametrize(
    ("container", "status", "said"),
    [("trainer", 200, "step 1"), ("nonsense", 404, "container is"), ("sandbox", 404, "sandboxes print nothing")],
)
async def test_the_log_of_a_container(run_browser: httpx.AsyncClient, container: str, status: int, said: str) -> None:
    answer = await run_browser.get(f"/runs/default/sorting/log?container={container}")
    assert (answer.status_code, said in answer.text) == (status, True)


async def test_a_run_without_anything_says_so() -> None:
    async with browser_of(Watched(run_of())) as browser:
        page = (await browser.get("/runs/default/sorting")).text
        points = (await browser.get("/runs/default/sorting/points")).json()
        log = await browser.get("/runs/default/sorting/log")
    assert "Nobody has looked at this run yet." in page
    assert "There are none yet: the first checkpoint has not been saved." in page
    assert points["note"] == "There are no curves yet: the run has not started"
    assert (log.status_code, "has not started" in log.text) == (404, True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "0 are named"),
        ("run=default/sorting", "1 is named"),
        ("run=default/sorting&run=default/sorting", "1 is named"),
        ("&".join(f"run=default/r{number}" for number in range(6)), "6 are named"),
        ("run=default/sorting&run=default/none", "there is no run"),
        ("run=default/sorting&run=other", "it must be NAMESPACE/NAME"),
        ("run=default/sorting&run=default/other", "Settings that differ"),
    ],
)
async def test_two_to_five_runs_are_compared(run_browser: httpx.AsyncClient, query: str, said: str) -> None:
    assert said in (await run_browser.get(f"/compare?{query}")).text


async def test_the_list_offers_to_compare(run_browser: httpx.AsyncClient) -> None:
    page = Elements((await run_browser.get("/runs")).text)
    boxes = [each["value"] for each in page.named("input") if each.get("type") == "checkbox"]
    assert sorted(map(str, boxes)) == ["default/other", "default/sorting"]
    assert [each["action"] for each in page.named("form") if each.get("id") == "compare"] == ["/ui/compare"]


async def test_the_whole_page_is_small() -> None:
    """Everything that a browser loads for it, as text."""
    async with browser_of(Watched(run_of(phase="Running", startTime=START))) as browser:
        page = (await browser.get("/runs/default/sorting")).text
        elements = Elements(page)
        files = [each["src"] for each in elements.named("script")]
        files += [each["href"] for each in elements.named("link") if each.get("rel") == "stylesheet"]
        sizes = {name: len((await browser.get(str(name).removeprefix("/ui"))).content) for name in files}
    assert len(sizes) == 7
    assert all(sizes.values())
    assert sum(sizes.values()) + len(page) < 150_000
