from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import finished_status, pod_document, run_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.api.names import POD_FINALIZER
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.cache.caches import Caches, Catalogs, ImmutableConfigMaps, UnreadableRuntime, list_catalogs
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.render.catalog_and_history import ImageCatalog, catalog_config_map
from rl_operator.status.attempt.pod_cleanup import expires_at
from rl_operator.status.attempt.view import QueuePosition


def test_a_finished_run_keeps_its_identity_and_phase_only() -> None:
    caches = Caches()
    document = run_document(config={"group_size": 8}, status=finished_status("Succeeded", attempt=1))
    document["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    caches.runs.put(document)
    run = caches.runs.get(("team-a", "sorting"))
    assert (run.metadata.uid, run.status.phase, run.status.finished) == (document["metadata"]["uid"], "Succeeded", True)
    assert (run.metadata.annotations, run.spec.config, run.status.message) == ({}, {}, None)


def test_a_finished_run_that_someone_edited_is_kept_whole() -> None:
    """So that its status can be put back."""
    caches = Caches()
    caches.runs.put(run_document(status={**finished_status("Succeeded"), "message": "edited"}))
    run = caches.runs.get(("team-a", "sorting"))
    assert run.status.message == "edited"


def test_an_unfinished_run_is_kept_whole() -> None:
    caches = Caches()
    caches.runs.put(run_document(config={"group_size": 8}, status={"phase": "Running", "message": "m"}))
    run = caches.runs.get(("team-a", "sorting"))
    assert (run.spec.config, run.status.message) == ({"group_size": 8}, "m")


def test_pods_are_found_by_their_runs_label_with_their_finalizers() -> None:
    caches = Caches()
    caches.pods.put(pod_document(finalizers=["other", POD_FINALIZER]))
    (pod,) = caches.pods.of_run(("team-a", "sorting"))
    assert pod.finalizers == ("other", POD_FINALIZER)
    assert pod.held


ENDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {"name": "trainer", "state": {"terminated": {"exitCode": 0, "message": '{"outcome": "succeeded"}'}}}
    ],
}


@pytest.mark.parametrize(
    ("run_phase", "finalizers", "kept"),
    [("Succeeded", [], False), ("Succeeded", [POD_FINALIZER], True), ("Running", [], True)],
    ids=["read and let go of", "of a finished run but held", "its end is not in the status yet"],
)
def test_a_pod_is_kept_whole_until_its_result_has_been_read(run_phase: str, finalizers: list[str], kept: bool) -> None:
    caches = Caches()
    caches.runs.put(run_document(status={"phase": run_phase}))
    caches.pods.put(pod_document(finalizers=finalizers) | {"status": ENDED})
    (pod,) = caches.pods.of_run(("team-a", "sorting"))
    assert (pod.result is not None, bool(pod.containers)) == (kept, kept)
    assert (pod.over, pod.attempt, pod.run_uid) == (True, 1, samples.UID)


def test_pods_that_are_still_polled_are_known_from_every_change() -> None:
    caches = Caches()
    for version, finalizers, status in ((1, [], {}), (2, [POD_FINALIZER], ENDED), (3, [], ENDED)):
        caches.pods.put(pod_document(version, finalizers) | {"status": status})
        assert bool(caches.live_pods) == (version < 3)
    caches.pods.put(pod_document(4) | {"status": {}})
    caches.pods.remove(pod_document(5))
    assert not caches.live_pods


def test_runs_that_have_not_started_are_known_from_every_change() -> None:
    caches = Caches()
    caches.runs.put(run_document(1))
    assert [run.key for run in caches.unstarted] == [("team-a", "sorting")]
    caches.runs.put(run_document(2, status={"phase": "Starting", "startTime": "2026-05-01T12:00:00Z", "attempt": 1}))
    assert not list(caches.unstarted)


def test_an_unreadable_runtime_is_kept_with_its_faults() -> None:
    caches = Caches()
    document = samples.TINY.to_wire()
    document["metadata"] = {"name": "tiny", "uid": "u", "resourceVersion": "1", "generation": 3}
    document["spec"]["newer"] = 1
    document["status"] = {"observedGeneration": 2}
    caches.runtimes.put(document)
    held = caches.runtimes.get(("", "tiny"))
    assert isinstance(held, UnreadableRuntime)
    assert (held.metadata.generation, held.status.observed_generation) == (3, 2)
    assert held.faults[0].field == "spec.newer"
    assert caches.runtimes.names() == ("tiny",)


async def test_images_read_by_an_earlier_process_are_adopted(api: FakeApi, client: ClusterClient) -> None:
    runtime = samples.make_runtime(image="registry.test/envs:1")
    found = ImageCatalog(samples.CATALOG, "sha256:1")
    config_map = catalog_config_map(runtime, "ops", found)
    damaged = {"metadata": {"name": "rl-catalog-x"}, "data": {"catalog.json": "{"}}
    listed = {"metadata": {"resourceVersion": "9"}, "items": [damaged, config_map]}
    api.answers("GET", "/api/v1/namespaces/ops/configmaps", Answer(listed))
    catalogs = Catalogs()
    await list_catalogs(client, catalogs, "ops")
    assert catalogs.of("registry.test/envs:1") == found
    assert "component=catalog" in api.requests[0].query["labelSelector"]


def test_an_expiring_finished_run_keeps_its_expiry() -> None:
    caches = Caches()
    status = finished_status("Failed", completionTime="2026-01-01T00:00:00Z")
    caches.runs.put(run_document(1, status, ttlSecondsAfterFinished=60))
    run = caches.runs.get(("team-a", "sorting"))
    assert expires_at(run) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert run.status.message is None


def test_slots_follow_the_cache_of_runs_and_the_runtimes_limit() -> None:
    caches = Caches()
    caches.runtimes.put(runtime_document(1, limits={"maxActiveRuns": 1}))
    waiting = {"phase": "Pending", "queue": {"place": 1, "active": 1, "limit": 1}}
    caches.runs.put(run_document(2, waiting))
    assert caches.runtime_queues.waiting("tiny") == (("team-a", "sorting"),)
    caches.runs.put_answer(run_document(3, {"phase": "Starting", "startTime": "2026-01-01T00:00:00Z", "attempt": 1}))
    other = samples.make_run()
    other = other.with_changes(metadata=other.metadata.with_changes(name="other"))
    assert caches.runtime_queues.queue_position(other) == QueuePosition(limit=1, active=1, before=0)
    caches.runs.sweep(set(), 4)
    assert caches.runtime_queues.queue_position(other) == QueuePosition(limit=1, active=0, before=0)
    caches.runtimes.put(runtime_document(5))
    assert caches.runtime_queues.queue_position(other) is None


def test_the_operators_own_image_is_known_and_others_once_they_are_read() -> None:
    catalogs = Catalogs(frozenset({"ours:1"}))
    known = catalogs.of("ours:1")
    assert known.catalog == bundled_catalog()
    assert catalogs.of("theirs:1") is None
    found = ImageCatalog(samples.catalog_of(), "sha256:1")
    catalogs.hold("theirs:1", found)
    assert catalogs.of("theirs:1") == found
    assert (catalogs.is_bundled("ours:1"), catalogs.is_bundled("theirs:1")) == (True, False)


def config_map(name: str, characters: int, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "lab", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "immutable": True, "data": {"config.yaml": "x" * characters}, **more}


def names_in(held: ImmutableConfigMaps, names: str) -> str:
    return "".join(name for name in names if held.get(("lab", name)))


def test_those_that_were_not_asked_for_longest_make_room() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    for name in "ab":
        held.hold(config_map(name, 400))
    assert names_in(held, "a") == "a"
    held.hold(config_map("c", 400))
    assert names_in(held, "abc") == "ac"
    held.hold(config_map("h", 1001))
    assert names_in(held, "ach") == ""
    held.hold(config_map("d", 900))
    assert names_in(held, "d") == "d"


def test_what_may_change_is_not_held() -> None:
    held = ImmutableConfigMaps()
    held.hold(config_map("a", 1, immutable=False))
    assert held.get(("lab", "a")) is None


def test_only_what_is_read_later_is_held_and_all_of_it_is_counted() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    large = config_map("a", 1)
    large["metadata"] |= {"annotations": {"x": "x" * 2000}, "managedFields": ["x" * 2000]}
    held.hold(large)
    assert held.get(("lab", "a")) == config_map("a", 1)
    large["metadata"]["ownerReferences"] = [{"uid": "x" * 2000}]
    held.hold(large)
    assert held.get(("lab", "a")) is None
    held.hold(config_map("b", 1, data={"x" * 2000: ""}))
    assert held.get(("lab", "b")) is None
    held.hold(config_map("c", 1, binaryData={"x": "x"}))
    assert held.get(("lab", "c")) is None, "none of ours has any: it is read each time, and refused"


def test_what_is_forgotten_leaves_its_room() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    for _ in range(3):
        held.hold(config_map("a", 400))
        held.hold(config_map("a", 400))
        held.hold(config_map("b", 400))
        assert names_in(held, "ab") == "ab"
        held.forget(("lab", "a"))
        held.forget(("lab", "a"))
        assert names_in(held, "ab") == "b"
