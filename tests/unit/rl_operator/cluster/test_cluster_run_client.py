"""What a reconcile may rely on: idempotent writes, and caches that reflect them at once."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import (
    POD_NAME,
    environment_document,
    pod_document,
    run_document,
    runtime_document,
)
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_contract.status_metrics import MAX_POINTS
from rl_operator.api.names import POD_FINALIZER
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import JSON_PATCH, ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.cluster_run_client import ClusterRunClient, write_history
from rl_operator.operator_errors import ConflictError, GoneError, NameTakenError
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render.catalog_and_history import ImageCatalog
from rl_operator.render.labels import controller_uid
from rl_operator.status.attempt.view import QueuePosition
from rl_operator.status.observed.history import Point, history_map_name
from rl_operator.status.observed.observation import PodObservation, observe_pod

KEY = ("team-a", "sorting")
PODS = "/api/v1/namespaces/team-a/pods"
POD = f"{PODS}/{POD_NAME}"
RUN = "/apis/rl-operator.dev/v1alpha1/namespaces/team-a/rltrainingruns/sorting"
TAKEN = Answer({"message": "already exists"}, 409)


@pytest.fixture
def run_client(client: ClusterClient, caches: Caches) -> RunClient:
    return ClusterRunClient(client, caches, EventRecorder(client), ToldMetrics())


def cached_pod(caches: Caches, **more: object) -> PodObservation:
    caches.pods.put(pod_document(**more))  # type: ignore[arg-type]
    (pod,) = caches.pods.of_run(KEY)
    return pod


def cached_run(run_client: RunClient, caches: Caches, status: dict[str, Any] | None = None) -> TrainingRun:
    """Version 4 of the run."""
    caches.runs.put(run_document(4, status))
    run = run_client.run(KEY)
    assert run is not None
    return run


async def test_a_created_pod_is_known_before_its_watch_event(api: FakeApi, run_client: RunClient) -> None:
    api.answers("POST", PODS, Answer(pod_document(version=7), 201))
    await run_client.create_child(pod_document())
    assert [pod.name for pod in run_client.pods(KEY)] == [POD_NAME]


async def test_other_children_are_known_by_kind_and_name(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    service = pod_document(version=8) | {"kind": "Service"}
    api.answers("POST", "/api/v1/namespaces/team-a/services", Answer(service, 201))
    await run_client.create_child(service)
    (asked,) = api.asked("POST", "/api/v1/namespaces/team-a/services")
    assert asked.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")  # their content is not read
    caches.config_maps.put(pod_document(version=9))
    assert run_client.children(KEY) == {("Service", POD_NAME), ("ConfigMap", POD_NAME)}
    caches.services.remove(service)
    assert run_client.children(KEY) == {("ConfigMap", POD_NAME)}
    assert run_client.children(("team-b", "sorting")) == frozenset()


async def test_a_runs_inputs_come_from_the_caches(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = samples.make_run(environment="own/maze")
    assert await run_client.environment(run) is None
    assert run_client.namespace_labels("team-a") == {"kubernetes.io/metadata.name": "team-a"}
    caches.environments.put(environment_document())
    caches.namespaces.put({"metadata": {"name": "team-a", "resourceVersion": "2", "labels": {"team": "a"}}})
    own = await run_client.environment(run)
    assert own.key == ("team-a", "maze")
    assert await run_client.environment(samples.make_run(environment="maze")) is None
    assert run_client.namespace_labels("team-a") == {"team": "a"}
    assert not run_client.namespace_is_deleted("team-a")
    caches.namespaces.put(
        {"metadata": {"name": "team-a", "resourceVersion": "3", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    )
    assert run_client.namespace_is_deleted("team-a")
    assert run_client.catalog(samples.TINY) is None
    caches.catalogs.hold(samples.TINY.spec.image, ImageCatalog(samples.CATALOG))
    assert run_client.catalog(samples.TINY) == samples.CATALOG
    assert api.requests == []


async def test_an_unreadable_runtime_is_not_called_missing(run_client: RunClient, caches: Caches) -> None:
    caches.runtimes.put(runtime_document())
    caches.runtimes.put(runtime_document(name="newer", novelty=1))
    assert run_client.runtime("tiny") is not None
    assert run_client.unreadable_runtime("tiny") is None
    assert run_client.runtime("newer") is None
    fault = run_client.unreadable_runtime("newer")
    assert fault.field == "spec.novelty"
    assert run_client.runtime_names() == ("newer", "tiny")


async def test_an_immutable_config_map_is_read_once(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    path, place = f"/api/v1/namespaces/team-a/configmaps/{POD_NAME}", ("team-a", POD_NAME)
    first = {**pod_document(2), "kind": "ConfigMap", "immutable": True, "data": {"config.yaml": "a"}}
    again = {**first, "metadata": {**first["metadata"], "uid": "another", "resourceVersion": "5"}}
    api.answers("GET", path, Answer(first), Answer(again), Answer({"message": "not found"}, 404))
    caches.config_maps.put(first)
    found = [await run_client.read_config_map(*place) for _ in range(3)]
    assert [each and each["data"] for each in found] == [first["data"]] * 3
    assert len(api.requests) == 1
    caches.config_maps.remove(first)
    caches.config_maps.put(again)
    assert await run_client.read_config_map(*place) == again, "one of that name is another one"
    caches.config_maps.remove(again)
    assert await run_client.read_config_map(*place) is None, "what is gone stays gone"


async def test_what_was_verified_is_known_until_another_has_its_name(run_client: RunClient, caches: Caches) -> None:
    run = samples.make_run()
    run = run.with_changes(status=run.status.with_changes(config_map_name=POD_NAME))
    first = {**pod_document(2), "kind": "ConfigMap"}
    caches.config_maps.put(first)
    assert not run_client.is_verified(run)
    run_client.hold_verified(first)
    assert run_client.is_verified(run)
    again = {**first, "metadata": {**first["metadata"], "uid": "another", "resourceVersion": "5"}}
    caches.config_maps.put(again)
    assert not run_client.is_verified(run)
    run_client.hold_verified(again)
    caches.config_maps.remove(again)
    assert not run_client.is_verified(run)


async def test_its_owners_may_change(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    path = f"/api/v1/namespaces/team-a/configmaps/{POD_NAME}"
    ours = {**pod_document(2), "kind": "ConfigMap", "immutable": True, "data": {"config.yaml": "a"}}
    theirs = {**pod_document(3, owner="someone-else"), "kind": "ConfigMap", "immutable": True, "data": ours["data"]}
    api.answers("GET", path, Answer(ours), Answer(theirs))
    caches.config_maps.put(ours)
    for document in (ours, theirs):
        caches.config_maps.put(document)
        found = [await run_client.read_config_map("team-a", POD_NAME) for _ in range(2)]
        assert {each and controller_uid(each) for each in found} == {controller_uid(document)}
    assert len(api.requests) == 2


async def test_the_files_of_an_own_environment_are_not_kept(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    """No watch would show that they are gone."""
    files = {"metadata": {"namespace": "team-a", "name": "code", "uid": "1", "resourceVersion": "2"}}
    answer = Answer({**files, "immutable": True, "data": {"maze.py": "..."}})
    api.answers("GET", "/api/v1/namespaces/team-a/configmaps/code", answer)
    own = samples.own_environment()
    for _ in range(2):
        assert await run_client.read_files(own) == {"maze.py": "..."}
    assert len(api.requests) == 2
    assert caches.immutable_config_maps.get(("team-a", "code")) is None


async def test_a_config_map_that_may_change_is_read_each_time(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    path = f"/api/v1/namespaces/team-a/configmaps/{POD_NAME}"
    changing = {**pod_document(2), "kind": "ConfigMap", "data": {"history.json": "[]"}}
    api.answers("GET", path, Answer(changing))
    caches.config_maps.put(changing)
    for _ in range(2):
        await run_client.read_config_map("team-a", POD_NAME)
    assert len(api.requests) == 2


async def test_a_name_that_is_already_ours_is_success(api: FakeApi, run_client: RunClient) -> None:
    api.answers("POST", PODS, TAKEN)
    api.answers("GET", POD, Answer(pod_document(version=7)))
    await run_client.create_child(pod_document())
    assert [pod.name for pod in run_client.pods(KEY)] == [POD_NAME]


DELETING = pod_document()
DELETING["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
IN_THE_WAY = {
    "a stranger's": (pod_document(owner="someone-else"), "is not this run's: delete or rename it"),
    "on its way out": (DELETING, "is still being deleted"),
}


@pytest.mark.parametrize(("live", "said"), IN_THE_WAY.values(), ids=IN_THE_WAY)
async def test_a_name_conflict_is_reported(
    api: FakeApi, run_client: RunClient, live: dict[str, object], said: str
) -> None:
    api.answers("POST", PODS, TAKEN)
    api.answers("GET", POD, Answer(live))
    with pytest.raises(NameTakenError, match=f"Pod team-a/{POD_NAME} .*{said}"):
        await run_client.create_child(pod_document())
    assert run_client.pods(KEY) == ()


async def test_a_name_that_has_become_free_is_tried_again(api: FakeApi, run_client: RunClient) -> None:
    api.answers("POST", PODS, TAKEN)
    with pytest.raises(ConflictError):
        await run_client.create_child(pod_document())


async def test_a_deletion_names_the_pods_uid_and_accepts_that_it_is_gone(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    pod = cached_pod(caches)
    deleting = pod_document(version=8)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    api.answers("DELETE", POD, Answer(deleting), Answer({"message": "not found"}, 404))
    await run_client.delete_pod(pod)
    assert [found.deleting for found in run_client.pods(KEY)] == [True]
    await run_client.delete_pod(pod)
    assert {request.body["preconditions"]["uid"] for request in api.requests} == {"pod-uid"}


async def test_a_release_removes_only_our_finalizer_and_only_from_that_pod(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    pod = cached_pod(caches, finalizers=["other", POD_FINALIZER])
    api.answers("PATCH", POD, Answer(pod_document(version=9, finalizers=["other"])))
    await run_client.remove_finalizer(pod)
    (patch,) = api.requests
    assert patch.headers["Content-Type"] == JSON_PATCH
    assert patch.body == [
        {"op": "test", "path": "/metadata/uid", "value": "pod-uid"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": POD_FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    assert [found.held for found in run_client.pods(KEY)] == [False]


async def test_a_release_retries_when_the_finalizers_changed(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    pod = cached_pod(caches, finalizers=["other", POD_FINALIZER])
    released = Answer(pod_document(version=9, finalizers=[]))
    api.answers("PATCH", POD, Answer({"message": "test failed"}, 422), released)
    api.answers("GET", POD, Answer(pod_document(version=8)))
    await run_client.remove_finalizer(pod)
    assert api.requests[-1].body[-1] == {"op": "remove", "path": "/metadata/finalizers/0"}


async def test_releasing_a_missing_or_released_pod_is_success(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    pod = cached_pod(caches)
    await run_client.remove_finalizer(pod)  # 404
    caches.pods.put(pod_document(version=2, finalizers=[]))
    await run_client.remove_finalizer(replace(pod, finalizers=(POD_FINALIZER,)))
    assert len(api.requests) == 1


async def test_a_status_write_sends_the_diff_against_the_version_it_read(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    run = cached_run(run_client, caches, {"phase": "Starting", "message": "old"})
    api.answers("PATCH", f"{RUN}/status", Answer(run_document(5, {"phase": "Running"})))
    written = await run_client.write_status(run, run.status.with_changes(phase="Running", message=None))
    (patch,) = api.requests
    assert patch.body["metadata"] == {"uid": run.metadata.uid, "resourceVersion": "4"}
    assert patch.body["status"] == {"phase": "Running", "message": None}
    assert run_client.run(KEY) == written
    assert written.metadata.resource_version == "5"


async def test_the_first_status_of_a_run_is_written_as_a_whole(
    api: FakeApi, run_client: RunClient, caches: Caches
) -> None:
    run = cached_run(run_client, caches)
    api.answers("PUT", f"{RUN}/status", Answer(run_document(5, {"phase": "Starting"})))
    written = await run_client.write_status(run, run.status.with_changes(phase="Starting", attempt=1))
    (update,) = api.requests
    version = {"uid": run.metadata.uid, "resourceVersion": "4"}
    assert update.body["metadata"] == {"namespace": "team-a", "name": "sorting", **version}
    assert update.body["status"] == {"phase": "Starting", "attempt": 1}
    assert run_client.run(KEY) == written
    assert written.status.phase == "Starting"


async def test_a_lost_race_puts_the_winner_into_the_cache(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches)
    api.answers("PUT", f"{RUN}/status", Answer({"message": "the object has been modified"}, 409))
    api.answers("GET", RUN, Answer(run_document(6, {"phase": "Stopping"})))
    with pytest.raises(ConflictError):
        await run_client.write_status(run, run.status.with_changes(phase="Running"))
    winner = run_client.run(KEY)
    assert winner.status.phase == "Stopping"


async def test_a_run_that_is_gone_is_forgotten(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches)
    with pytest.raises(GoneError):
        await run_client.write_status(run, run.status.with_changes(phase="Running"))
    assert run_client.run(KEY) is None
    assert await run_client.read_run(KEY) is None
    assert len(api.requests) == 2


async def test_exactly_that_version_of_a_run_is_marked(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches)
    api.answers("PATCH", RUN, Answer(run_document(5)))
    live = await run_client.mark_started(run)
    (patch,) = api.requests
    mark = {"rl-operator.dev/started-as": f"sorting.{run.metadata.uid}"}
    assert patch.body == {"metadata": {"uid": run.metadata.uid, "resourceVersion": "4", "annotations": mark}}
    assert (live.metadata.resource_version, run_client.run(KEY)) == ("5", live)


async def test_another_run_with_the_name_is_not_marked(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches)
    newer = run_document(6)
    newer["metadata"]["uid"] = "another"
    api.answers("PATCH", RUN, Answer({"message": "Precondition failed: UID"}, 409))
    api.answers("GET", RUN, Answer(newer))
    with pytest.raises(ConflictError):
        await run_client.mark_started(run)
    held = run_client.run(KEY)
    assert held.metadata.uid == "another"


async def test_a_run_that_is_gone_is_not_marked(run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches)
    with pytest.raises(GoneError):
        await run_client.mark_started(run)
    assert run_client.run(KEY) is None


async def test_only_that_version_of_a_run_is_deleted(api: FakeApi, run_client: RunClient, caches: Caches) -> None:
    run = cached_run(run_client, caches, {"phase": "Succeeded"})
    api.answers("DELETE", RUN, Answer({"kind": "Status"}), Answer({"message": "not found"}, 404))
    await run_client.delete_run(run)
    await run_client.delete_run(run)
    wanted = {"uid": run.metadata.uid, "resourceVersion": "4"}
    assert [request.body["preconditions"] for request in api.requests] == [wanted, wanted]


async def test_a_slot_is_claimed_while_a_start_is_written(run_client: RunClient, caches: Caches) -> None:
    caches.runtimes.put(runtime_document(1, limits={"maxActiveRuns": 1}))
    run, other = cached_run(run_client, caches), samples.make_run()
    other = other.with_changes(metadata=other.metadata.with_changes(name="other"))
    with run_client.slot_claimed(run):
        assert run_client.queue_position(other) == QueuePosition(limit=1, active=1, before=0)
    assert run_client.queue_position(other) == QueuePosition(limit=1, active=0, before=0)


# --- the history ------------------------------------------------------------------------------------------------------
NAME = history_map_name(samples.make_run())
ENDED = samples.make_run().with_changes(status=RunStatus(history_name=NAME))
FOLDER = "/api/v1/namespaces/team-a/configmaps"
POINTS: tuple[Point, ...] = ({"step": 2, "rolloutReward": 0.5},)


def config_map(*points: Point, owner: str = samples.UID) -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}]
    metadata = {"name": NAME, "namespace": "team-a", "uid": "c-1", "resourceVersion": "7", "ownerReferences": owners}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"history.json": json.dumps({"points": points})}}


def written(body: Any) -> list[Point]:
    points: list[Point] = json.loads(body["data"]["history.json"])["points"]
    return points


async def test_the_first_attempt_creates_it_owned_and_labeled(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", FOLDER, Answer(config_map(*POINTS), 201))
    await write_history(client, ENDED, POINTS, None)
    body = api.asked("POST", FOLDER)[0].body
    assert written(body) == list(POINTS)
    assert body["metadata"]["ownerReferences"][0]["uid"] == samples.UID
    assert body["metadata"]["labels"]["rl-operator.dev/run"] == "sorting"
    assert body["metadata"]["labels"]["app.kubernetes.io/component"] == "history"


async def test_a_later_one_continues_with_the_same_object(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    earlier = config_map({"step": 1, "rolloutReward": 0.25}, {"step": 2, "rolloutReward": 0.25}, {"step": 3})
    await write_history(client, ENDED, POINTS, earlier)
    body = api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body
    assert written(body) == [{"step": 1, "rolloutReward": 0.25}, *POINTS]
    assert body["metadata"] == {"uid": "c-1", "resourceVersion": "7"}


async def test_it_stays_bounded_whatever_was_there_before(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    many = [{"step": step} for step in range(1, 801)]
    await write_history(client, ENDED, [{"step": step} for step in range(801, 1_601)], config_map(*many))
    body = api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body
    assert len(written(body)) <= MAX_POINTS
    assert written(body)[-1] == {"step": 1_600}


async def test_an_unreadable_history_is_started_over(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    await write_history(client, ENDED, POINTS, config_map() | {"data": {"history.json": "{"}})
    assert written(api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body) == list(POINTS)


async def test_an_unrelated_object_with_that_name_is_not_taken_over(api: FakeApi, client: ClusterClient) -> None:
    with pytest.raises(NameTakenError, match="is not this run's"):
        await write_history(client, ENDED, POINTS, config_map(owner="u-2"))
    assert api.asked("PATCH", f"{FOLDER}/{NAME}") == []


async def test_the_view_reads_it_only_if_it_is_known_to_exist(
    api: FakeApi, client: ClusterClient, caches: Caches
) -> None:
    pod = observe_pod(pod_document())
    run_client = ClusterRunClient(client, caches, EventRecorder(client), ToldMetrics(histories={pod.name: POINTS}))
    created = pod_document(version=9)
    created["metadata"] |= {"name": NAME, "uid": "c-1"}
    api.answers("POST", FOLDER, Answer(created, 201))
    await run_client.save_history(ENDED, pod)
    assert api.asked("GET", f"{FOLDER}/{NAME}") == []
    api.answers("GET", f"{FOLDER}/{NAME}", Answer(config_map({"step": 1})))
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(created))
    await run_client.save_history(ENDED, pod)
    assert written(api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body) == [{"step": 1}, *POINTS]
    await run_client.save_history(samples.make_run(), pod)
    assert len(api.requests) == 3, "a status that names no series has none"
