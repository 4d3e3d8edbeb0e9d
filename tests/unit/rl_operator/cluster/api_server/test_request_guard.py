"""What all requests pass through, over real HTTP."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, write_kubeconfig
from yarl import URL

from rl_operator.cluster.api_server.client import ClusterClient, Middlewares
from rl_operator.cluster.api_server.request_guard import NotLeadingError, WatchAges, counted, fenced, verb_of
from rl_operator.operator_errors import GoneError, TargetUnreachableError

PODS = "/api/v1/namespaces/ns/pods"
OURS = "/apis/rl-operator.dev/v1alpha1"

VERBS = [
    ("GET", "/api/v1/pods?limit=100", "list"),
    ("GET", f"{PODS}?labelSelector=a", "list"),
    ("GET", f"{PODS}/p", "get"),
    ("GET", f"{PODS}/p/log", "get"),
    ("GET", "/api/v1/namespaces", "list"),
    ("GET", "/api/v1/namespaces/ns", "get"),
    ("GET", f"{OURS}/rltrainingruns?watch=true", "watch"),
    ("GET", f"{OURS}/namespaces/ns/rltrainingruns", "list"),
    ("GET", f"{OURS}/rlruntimes/tiny", "get"),
    ("GET", OURS, "get"),
    ("POST", PODS, "create"),
    ("PUT", f"{PODS}/p", "update"),
    ("PATCH", f"{PODS}/p/status", "patch"),
    ("DELETE", f"{PODS}/p", "delete"),
]


@pytest.mark.parametrize(("method", "path", "verb"), VERBS)
def test_verbs_are_those_of_kubernetes(method: str, path: str, verb: str) -> None:
    assert verb_of(method, URL(f"https://server{path}")) == verb


async def connect(api: FakeApi, folder: Path, middlewares: Middlewares) -> ClusterClient:
    return await ClusterClient.connect(str(write_kubeconfig(folder, api.url)), "", 5.0, middlewares)


def calls(verb: str, code: str) -> float:
    return REGISTRY.get_sample_value("rl_operator_api_calls_total", {"verb": verb, "code": code}) or 0.0


async def test_calls_are_counted_by_verb_and_code_including_kopfs(api: FakeApi, tmp_path: Path) -> None:
    before = {key: calls(*key) for key in (("get", "200"), ("get", "404"), ("delete", "none"))}
    api.answers("GET", f"{PODS}/p", Answer({"kind": "Pod"}))
    async with await connect(api, tmp_path, (counted(WatchAges(300)),)) as client:
        await client.get(f"{PODS}/p")
        with pytest.raises(GoneError):
            await client.get(f"{PODS}/q")
        async with client.kopf_session(print) as session, session.get(f"{api.url}{PODS}/p") as response:
            assert response.status == 200
    api.url = "http://127.0.0.1:1"
    async with await connect(api, tmp_path, (counted(WatchAges(300)),)) as client:
        with pytest.raises(TargetUnreachableError):
            await client.delete(f"{PODS}/p", "uid")
    assert {key: calls(*key) - count for key, count in before.items()} == {
        ("get", "200"): 2,
        ("get", "404"): 1,
        ("delete", "none"): 1,
    }


async def test_events_keep_a_watch_fresh(api: FakeApi, tmp_path: Path) -> None:
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}
    api.answers("WATCH", PODS, Answer(lines=(event,), hangs=True))
    ages = WatchAges(300)
    ages.expect(["pods"])
    async with await connect(api, tmp_path, (counted(ages),)) as client:
        await asyncio.sleep(0.05)
        before = ages.silent_seconds()["pods"]
        async for _ in client.watch(PODS, {}):
            break
        assert ages.silent_seconds()["pods"] < before


async def test_a_standby_reads_but_does_not_write(api: FakeApi, tmp_path: Path) -> None:
    leads = False
    api.answers("GET", f"{PODS}/p", Answer({"kind": "Pod"}))
    api.answers("POST", PODS, Answer({"kind": "Pod"}))
    async with await connect(api, tmp_path, (fenced(lambda: leads),)) as client:
        await client.get(f"{PODS}/p")
        for write in (client.create(PODS, {}), client.patch(f"{PODS}/p", {}), client.delete(f"{PODS}/p", "uid")):
            with pytest.raises(NotLeadingError, match="not sent"):
                await write
        assert [request.method for request in api.requests] == ["GET"]
        leads = True
        await client.create(PODS, {})
    assert [request.method for request in api.requests] == ["GET", "POST"]


PATIENCE = 100.0


@dataclass
class Body:
    """A stream that has received this much so far."""

    total_bytes: int = 0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch_clock() -> Clock:
    return Clock()


@pytest.fixture
def ages(watch_clock: Clock) -> WatchAges:
    watched = WatchAges(PATIENCE, watch_clock)
    watched.expect(["pods", "services"])
    return watched


def pass_time(ages: WatchAges, clock: Clock, seconds: float, *busy: Body) -> None:
    """The API server answers some call or other every ten seconds, and these streams bring bookmarks."""
    for _ in range(int(seconds / 10)):
        clock.now += 10
        ages.answered()
        for body in busy:
            body.total_bytes += 50
        ages.silent_seconds()


def test_a_watch_with_bookmarks_is_fresh(ages: WatchAges, watch_clock: Clock) -> None:
    pods, services = Body(), Body()
    ages.opened("pods", pods)
    ages.opened("services", services)
    pass_time(ages, watch_clock, 1000, pods, services)
    watch_clock.now += 7
    assert ages.silent_seconds() == {"pods": 7, "services": 7}
    assert ages.stale() == {}


def test_an_open_but_silent_stream_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    pods, services = Body(), Body()
    ages.opened("pods", pods)
    ages.opened("services", services)
    pass_time(ages, watch_clock, PATIENCE, services)
    assert ages.stale() == {}
    pass_time(ages, watch_clock, 10, services)
    assert ages.stale() == {"pods": PATIENCE + 10}


def test_a_watch_that_keeps_reopening_in_vain_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    services = Body()
    ages.opened("services", services)
    for _ in range(15):
        ages.opened("pods", Body())
        pass_time(ages, watch_clock, 10, services)
    assert list(ages.stale()) == ["pods"]


def test_a_watch_that_was_never_opened_is_stale(ages: WatchAges, watch_clock: Clock) -> None:
    services = Body()
    ages.opened("services", services)
    pass_time(ages, watch_clock, PATIENCE + 10, services)
    assert list(ages.stale()) == ["pods"]


def test_the_last_streams_events_count_when_the_next_is_opened(ages: WatchAges, watch_clock: Clock) -> None:
    first = Body()
    ages.opened("pods", first)
    watch_clock.now += 50
    first.total_bytes += 50
    ages.opened("pods", Body())
    assert ages.silent_seconds()["pods"] == 0


def test_an_unreachable_or_just_returned_api_server_makes_nothing_stale(ages: WatchAges, watch_clock: Clock) -> None:
    body = Body()
    ages.opened("pods", body)
    pass_time(ages, watch_clock, 10, body)
    watch_clock.now += 10 * PATIENCE
    assert ages.stale() == {}, "it does not answer"
    ages.answered()
    pass_time(ages, watch_clock, PATIENCE - 10)
    assert ages.stale() == {}, "watches are still being opened"
    pass_time(ages, watch_clock, 20)
    assert list(ages.stale()) == ["pods", "services"]


def test_before_the_first_answer_nothing_is_stale(watch_clock: Clock) -> None:
    ages = WatchAges(PATIENCE, watch_clock)
    ages.expect(["pods"])
    watch_clock.now += 10 * PATIENCE
    assert ages.stale() == {}
