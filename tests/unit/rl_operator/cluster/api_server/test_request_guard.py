"""What all requests pass through, over real HTTP."""

import asyncio
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
