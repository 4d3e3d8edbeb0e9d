"""How the parts are wired: which events bring which runs into the queue, and what the probe looks at."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import pod_document, run_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving

from rl_operator.cluster.caches import list_own_kinds
from rl_operator.handlers.operator import STUCK_SECONDS, Operator
from rl_operator.settings import OperatorSettings

KEY = ("team-a", "sorting")


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        yield Operator(client, OperatorSettings())


def event(kind: str | None, document: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": document}


def queued(operator: Operator) -> set[tuple[str, str]]:
    return set(operator.queue._waiting)


def named(name: str, version: int, **fields: Any) -> dict[str, Any]:
    document = run_document(version, **fields)
    document["metadata"] |= {"name": name, "uid": name}
    return document


def runtime(version: int, name: str = "tiny") -> dict[str, Any]:
    document = samples.TINY.to_wire()
    document["metadata"] = {"name": name, "uid": name, "resourceVersion": str(version)}
    return document


async def test_a_runs_event_brings_it_into_the_queue(operator: Operator) -> None:
    operator.run_event(event(None, run_document(1)))
    assert queued(operator) == {KEY}


async def test_an_event_that_is_no_news_brings_nothing(operator: Operator) -> None:
    operator.caches.runs.put(run_document(2))
    operator.run_event(event("MODIFIED", run_document(2)))
    operator.run_event(event("MODIFIED", run_document(1)))
    assert queued(operator) == set()


async def test_a_deletion_brings_the_run_once_more_for_its_pods(operator: Operator) -> None:
    operator.caches.runs.put(run_document(2))
    operator.run_event(event("DELETED", run_document(3)))
    assert queued(operator) == {KEY}
    assert operator.caches.runs.get(KEY) is None


async def test_a_runtime_brings_the_runs_that_wait_for_it(operator: Operator) -> None:
    for document in (
        named("waiting", 1),
        named("elsewhere", 2, runtime="default"),
        named("started", 3, status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}),
        named("finished", 4, status={"phase": "Failed", "startTime": "2026-01-01T00:00:00Z"}),
    ):
        operator.caches.runs.put(document)
    operator.runtime_event(event("ADDED", runtime(5)))
    assert queued(operator) == {("team-a", "waiting")}
    assert operator.caches.runtimes.names() == ("tiny",)


async def test_the_probe_names_a_watch_that_stands_still(operator: Operator) -> None:
    assert operator.trouble() is None
    operator._informers[1].active_at -= STUCK_SECONDS + 1
    assert "has done nothing for" in (operator.trouble() or "")


async def test_what_vanished_while_nobody_watched_is_forgotten_by_the_next_list(tmp_path: Path) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        operator = Operator(client, OperatorSettings())
        operator.caches.runs.put(run_document(1))
        operator.caches.runs.put(named("other", 2))
        operator.caches.pods.put(pod_document(3))
        kinds = "/apis/rl-operator.dev/v1alpha1"
        api.answers("GET", f"{kinds}/rlruntimes", Answer({"metadata": {"resourceVersion": "9"}, "items": [runtime(4)]}))
        listed = {"metadata": {"resourceVersion": "9"}, "items": [named("other", 2)]}
        api.answers("GET", f"{kinds}/rltrainingruns", Answer(listed))
        await list_own_kinds(client, operator.caches, None)
        assert [run.metadata.name for run in operator.caches.runs] == ["other"]
        # Its pod is still held: the run's key must come by once more.
        assert KEY in operator.caches.pods.runs()
