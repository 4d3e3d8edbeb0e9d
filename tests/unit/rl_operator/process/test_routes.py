"""Which event enqueues which keys in which queue."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import (
    environment_document,
    pod_document,
    run_document,
    runtime_document,
)

from rl_operator.cluster.cache.caches import Caches, Catalogs, Changes
from rl_operator.cluster.cache.queue import WorkQueue
from rl_operator.process.routes import Queues, Routes

KEY = ("team-a", "sorting")
STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "attempt": 1}


@pytest.fixture
def cached_catalogs() -> Caches:
    return Caches(Catalogs(frozenset({samples.TINY.spec.image})))


@pytest.fixture
async def queues() -> Queues:
    return Queues(WorkQueue(), WorkQueue(), WorkQueue())


@pytest.fixture
def routes(cached_catalogs: Caches, queues: Queues) -> Routes:
    return Routes(cached_catalogs, queues)


def event(kind: str | None, document: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": document}


def waiting(queue: WorkQueue) -> set[tuple[str, str]]:
    return set(queue._waiting)


def named(name: str, version: int, **fields: Any) -> dict[str, Any]:
    document = run_document(version, **fields)
    document["metadata"] |= {"name": name, "uid": name}
    return document


async def test_a_runs_event_enqueues_it(routes: Routes, queues: Queues) -> None:
    routes.run_event(event(None, run_document(1)))
    assert waiting(queues.runs) == {KEY}


async def test_an_event_without_news_enqueues_nothing(routes: Routes, cached_catalogs: Caches, queues: Queues) -> None:
    cached_catalogs.runs.put(run_document(2))
    routes.run_event(event("MODIFIED", run_document(2)))
    routes.run_event(event("MODIFIED", run_document(1)))
    assert waiting(queues.runs) == set()


async def test_a_deletion_enqueues_the_run_once_more_for_its_pods(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(run_document(2))
    routes.run_event(event("DELETED", run_document(3)))
    assert waiting(queues.runs) == {KEY}
    assert cached_catalogs.runs.get(KEY) is None


async def test_a_finished_run_enqueues_the_runs_that_start_from_it(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(named("child", 1, startFrom={"run": "sorting"}))
    cached_catalogs.runs.put(named("other", 2, startFrom={"run": "maze"}))
    cached_catalogs.runs.put(named("begun", 3, startFrom={"run": "sorting"}, status=STARTED))
    routes.run_event(event("MODIFIED", run_document(4, STARTED)))
    assert waiting(queues.runs) == {KEY}
    routes.run_event(event("MODIFIED", run_document(5, {**STARTED, "phase": "Succeeded"})))
    assert waiting(queues.runs) == {KEY, ("team-a", "child")}


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
async def test_a_run_that_appears_or_vanishes_enqueues_the_runs_that_name_it(
    routes: Routes, cached_catalogs: Caches, queues: Queues, kind: str
) -> None:
    cached_catalogs.runs.put(named("child", 1, startFrom={"run": "sorting"}))
    if kind == "DELETED":
        cached_catalogs.runs.put(run_document(2, STARTED))
    routes.run_event(event(kind, run_document(3)))
    assert waiting(queues.runs) == {KEY, ("team-a", "child")}


async def test_a_runtime_enqueues_itself_and_the_runs_that_wait_for_it(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(named("waiting", 1))
    cached_catalogs.runs.put(named("elsewhere", 2, runtime="default"))
    cached_catalogs.runs.put(named("started", 3, status=STARTED))
    cached_catalogs.runs.put(named("finished", 4, status={**STARTED, "phase": "Failed"}))
    routes.runtime_event(event("ADDED", runtime_document(5)))
    assert waiting(queues.runs) == {("team-a", "waiting")}
    assert waiting(queues.runtimes) == {("", "tiny")}


async def test_an_environment_enqueues_itself_and_the_runs_that_name_it(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(named("waiting", 1, environment="own/maze"))
    cached_catalogs.runs.put(named("bundled", 2, environment="maze"))
    cached_catalogs.runs.put(named("started", 3, environment="own/maze", status=STARTED))
    far = named("far", 4, environment="own/maze")
    far["metadata"]["namespace"] = "team-b"
    cached_catalogs.runs.put(far)
    routes.environment_event(event("ADDED", environment_document(5)))
    assert waiting(queues.environments) == {("team-a", "maze")}
    assert waiting(queues.runs) == {("team-a", "waiting")}


async def test_namespace_labels_enqueue_the_runs_that_wait_there(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(named("waiting", 1))
    cached_catalogs.runs.put(named("started", 2, status=STARTED))
    routes.namespace_changed(("", "team-b"))
    assert waiting(queues.runs) == set()
    routes.namespace_changed(("", "team-a"))
    assert waiting(queues.runs) == {("team-a", "waiting")}


async def test_the_catalog_of_an_image_enqueues_all_runtimes_of_that_image(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runtimes.put(runtime_document(1, "one", image="i"))
    cached_catalogs.runtimes.put(runtime_document(2, "two", image="other", environmentImage="i"))
    cached_catalogs.runtimes.put(runtime_document(3, "three", image="i", environmentImage="j"))
    cached_catalogs.runtimes.put(runtime_document(4, "unreadable", image="i", nonsense=1))
    routes.catalog_changed("i")
    assert waiting(queues.runtimes) == {("", "one"), ("", "two")}


async def test_a_resync_enqueues_everything_but_finished_runs(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runs.put(named("running", 1, status=STARTED))
    cached_catalogs.runs.put(named("over", 2, status={**STARTED, "phase": "Failed"}))
    cached_catalogs.pods.put(pod_document(3))
    cached_catalogs.runtimes.put(runtime_document(4))
    cached_catalogs.environments.put(environment_document(5))
    routes.add_all(0.0)
    assert set(queues.runs._timers) == {("team-a", "running"), KEY}
    assert set(queues.runtimes._timers) == {("", "tiny")}
    assert set(queues.environments._timers) == {("team-a", "maze")}


async def test_changes_found_only_by_a_list_are_enqueued(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    """A run that vanished may be what another one starts from."""
    cached_catalogs.runs.put(named("child", 1, startFrom={"run": "parent"}))
    routes.listed(Changes(frozenset({("", "tiny")}), frozenset({("team-a", "own")}), frozenset({("team-a", "parent")})))
    assert waiting(queues.runtimes) == {("", "tiny")}
    assert waiting(queues.environments) == {("team-a", "own")}
    assert {("team-a", "parent"), ("team-a", "child")} <= waiting(queues.runs)


WAITING = {"phase": "Pending", "queue": {"place": 1, "active": 1, "limit": 1}}


async def test_the_end_of_a_run_enqueues_the_head_of_its_runtimes_queue(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runtimes.put(runtime_document(1, limits={"maxActiveRuns": 1}))
    cached_catalogs.runs.put(named("active", 2, status=STARTED))
    cached_catalogs.runs.put(named("first", 3, status=WAITING))
    cached_catalogs.runs.put(named("second", 4, status=WAITING))
    assert waiting(queues.runs) == set()
    routes.run_event(event("DELETED", named("active", 5, status=STARTED)))
    assert waiting(queues.runs) == {("team-a", "active"), ("team-a", "first")}


async def test_a_changed_limit_enqueues_all_waiting_runs_including_stopped_ones(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    cached_catalogs.runtimes.put(runtime_document(1, limits={"maxActiveRuns": 0}))
    cached_catalogs.runs.put(named("new", 2, status=WAITING))
    cached_catalogs.runs.put(named("resumed", 3, status={**WAITING, "startTime": "2026-01-01T00:00:00Z", "attempt": 1}))
    routes.runtime_event(event("MODIFIED", runtime_document(4, limits={"maxActiveRuns": 1})))
    assert waiting(queues.runs) == {("team-a", "new"), ("team-a", "resumed")}


async def test_finished_runs_are_enqueued_once_if_they_expire(
    routes: Routes, cached_catalogs: Caches, queues: Queues
) -> None:
    over = {**STARTED, "phase": "Failed", "completionTime": "2026-01-01T00:00:00Z"}
    cached_catalogs.runs.put(named("expires", 1, status=over, ttlSecondsAfterFinished=60))
    cached_catalogs.runs.put(named("stays", 2, status=over))
    routes.add_expiring()
    assert waiting(queues.runs) == {("team-a", "expires")}
