"""List, watch, and list again: objects that vanished in between are noticed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi
from tests.unit.rl_operator.patience import until

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.resources import PODS
from rl_operator.cluster.cache.informer import Informer
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache

PATH = "/api/v1/pods"
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


def pod(name: str, version: int) -> dict[str, Any]:
    labels = {"run": f"run-of-{name}"}
    return {
        "metadata": {
            "namespace": "ns", "name": name, "uid": name, "resourceVersion": str(version), "labels": labels,
        }
    }  # fmt: skip


def listed(version: int, *items: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


class Watched:
    """An informer's store and what it reported."""

    def __init__(self, client: ClusterClient) -> None:
        self.told: list[str] = []
        self.store: ResourceCache[Any, str] = ResourceCache(
            lambda found: found["metadata"]["resourceVersion"],
            lambda found: ("ns", found["metadata"]["labels"]["run"]),
        )
        self.informer = Informer(client, PODS, self.store, self._tell, selector="a=b")

    def _tell(self, key: Key) -> None:
        self.told.append(key[1])


@asynccontextmanager
async def watching(client: ClusterClient) -> AsyncIterator[Watched]:
    watched = Watched(client)
    task = asyncio.create_task(watched.informer.run())
    try:
        async with asyncio.timeout(60):
            await watched.informer.wait_synced()
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_list_is_reported_and_then_each_change(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", PATH, listed(5, pod("a", 1), pod("b", 2)))
    changes = ({"type": "MODIFIED", "object": pod("a", 6)}, {"type": "DELETED", "object": pod("b", 7)})
    api.answers("WATCH", PATH, Answer(lines=changes), Answer(hangs=True))
    async with watching(client) as watched:
        await until("the deletion is told", lambda: watched.told.count("run-of-b") == 2)
        assert watched.told == ["run-of-a", "run-of-b", "run-of-a", "run-of-b"]
        assert list(watched.store) == ["6"]
        await until("it watches on from there", lambda: len(api.asked("WATCH", PATH)) == 2)
    assert [r.query["resourceVersion"] for r in api.asked("WATCH", PATH)] == ["5", "7"]
    assert {r.query["labelSelector"] for r in api.requests} == {"a=b"}
    assert len(api.asked("GET", PATH)) == 1


async def test_bookmarks_advance_the_watch(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", PATH, listed(5))
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "90"}}}
    api.answers("WATCH", PATH, Answer(lines=(bookmark,)), Answer(hangs=True))
    async with watching(client) as watched:
        await until("it watches on", lambda: len(api.asked("WATCH", PATH)) == 2)
    assert api.asked("WATCH", PATH)[1].query["resourceVersion"] == "90"
    assert watched.told == []


async def test_objects_that_vanished_during_a_gap_are_reported(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", PATH, listed(5, pod("a", 1), pod("b", 2)), listed(50, pod("a", 1)))
    api.answers("WATCH", PATH, Answer(lines=(GONE,)), Answer(hangs=True))
    async with watching(client) as watched:
        await until("b is told again", lambda: watched.told.count("run-of-b") == 2)
        assert list(watched.store) == ["1"]
    assert watched.told.count("run-of-a") == 1


async def test_after_an_outage_the_watch_continues_where_it_was(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", PATH, listed(5, pod("a", 1)))
    down = Answer({"message": "etcd has no leader"}, 503)
    news = Answer(lines=({"type": "MODIFIED", "object": pod("a", 6)},))
    api.answers("WATCH", PATH, down, down, news, Answer(hangs=True))
    async with watching(client) as watched:
        await until("the news is told", lambda: watched.told == ["run-of-a", "run-of-a"])
    assert len(api.asked("GET", PATH)) == 1


async def test_it_is_not_synced_before_the_list_is_complete(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", PATH, Answer({"message": "starting"}, 503), listed(5, pod("a", 1)))
    api.answers("WATCH", PATH, Answer(hangs=True))
    async with watching(client) as watched:
        assert watched.told == ["run-of-a"]
