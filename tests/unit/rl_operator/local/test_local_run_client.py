"""The local target keeps the promises of `reconcile.run_client.RunClient`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator.local.pod_examples import container, pod
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_operator.api.catalog import Catalog
from rl_operator.api.training_run import TrainingRun
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.local_run_client import LocalRunClient
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.local.state.pod_logs import read_events
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, GoneError, NameTakenError
from rl_operator.status.observed.observation import ObservedTrainer

KEY = ("default", "run")


async def nothing_found(_files: Mapping[str, str], _entry: str | None) -> Catalog:
    return Catalog()


@pytest.fixture
def local_run_client(store: StateStore) -> LocalRunClient:
    environments = OwnEnvironments(store.get, nothing_found)
    return LocalRunClient(
        store, environments, ToldMetrics({"run-00000-1": ObservedTrainer(step=7)}), Interpreters(store.layout, {})
    )


@pytest.fixture
def created_run(store: StateStore, local_run_client: LocalRunClient) -> TrainingRun:
    store.create(
        {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": "run", "namespace": "default"},
            "spec": {"environment": "sort_digits", "runtime": "tiny"},
        }
    )
    created = local_run_client.run(KEY)
    assert created is not None
    return created


def owned_pod(uid: str) -> dict[str, Any]:
    manifest = pod(container("trainer", "pass"))
    manifest["metadata"] |= {
        "finalizers": ["rl-operator.dev/result"],
        "ownerReferences": [{"kind": "RLTrainingRun", "name": "run", "uid": uid, "controller": True}],
    }
    return manifest


def test_runtimes_and_catalog_are_the_shipped_ones(local_run_client: LocalRunClient) -> None:
    assert local_run_client.runtime_names() == ("default", "tiny")
    tiny = local_run_client.runtime("tiny")
    assert tiny is not None
    catalog = local_run_client.catalog(tiny)
    assert catalog is not None
    assert "sort_digits" in catalog.names
    assert local_run_client.runtime("other") is None


async def test_creating_a_child_again_is_success_only_if_it_is_ours(
    local_run_client: LocalRunClient, created_run: TrainingRun
) -> None:
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    assert [p.name for p in local_run_client.pods(KEY)] == ["run-00000-1"]
    with pytest.raises(NameTakenError):
        await local_run_client.create_child(owned_pod("another run's uid"))


async def test_a_name_that_is_being_deleted_is_taken(
    local_run_client: LocalRunClient, created_run: TrainingRun
) -> None:
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    await local_run_client.delete_pod(local_run_client.pods(KEY)[0])
    assert local_run_client.pods(KEY)[0].deleting
    with pytest.raises(NameTakenError):
        await local_run_client.create_child(owned_pod(created_run.metadata.uid))


async def test_a_pod_is_bound_to_this_machine_and_held_by_its_kubelet(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    observed = local_run_client.pods(KEY)[0]
    assert observed.node == "localhost"
    assert observed.held
    await local_run_client.remove_finalizer(observed)
    await local_run_client.remove_finalizer(observed)
    assert not local_run_client.pods(KEY)[0].held
    await local_run_client.delete_pod(observed)
    kept = store.get("Pod", "default", "run-00000-1")
    assert kept is not None
    assert kept["metadata"]["finalizers"] == ["rl-operator.dev/kubelet"]


async def test_deleting_and_releasing_missing_pods_is_success(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    observed = local_run_client.pods(KEY)[0]
    store.update("Pod", "default", "run-00000-1", lambda manifest: manifest["metadata"].update(finalizers=[]))
    store.delete("Pod", "default", "run-00000-1")
    await local_run_client.delete_pod(observed)
    await local_run_client.remove_finalizer(observed)


async def test_a_status_is_written_against_the_version_read(
    local_run_client: LocalRunClient, created_run: TrainingRun
) -> None:
    written = await local_run_client.write_status(created_run, created_run.status.with_changes(phase="Starting"))
    assert written.status.phase == "Starting"
    assert written.metadata.generation == created_run.metadata.generation
    assert await local_run_client.read_run(KEY) == written
    with pytest.raises(ConflictError):
        await local_run_client.write_status(created_run, created_run.status.with_changes(phase="Running"))


async def test_the_status_of_a_missing_run(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    store.delete("RLTrainingRun", "default", "run")
    with pytest.raises(GoneError):
        await local_run_client.write_status(created_run, created_run.status.with_changes(phase="Starting"))
    assert local_run_client.run(KEY) is None


async def test_pods_of_a_run_with_a_similar_name_are_not_mixed_up(
    local_run_client: LocalRunClient, created_run: TrainingRun
) -> None:
    other = owned_pod(created_run.metadata.uid)
    other["metadata"] |= {"name": "run-2-00000-1", "labels": {"rl-operator.dev/run": "run-2"}}
    await local_run_client.create_child(other)
    assert local_run_client.pods(KEY) == ()
    assert [p.name for p in local_run_client.pods(("default", "run-2"))] == ["run-2-00000-1"]


async def test_children_belong_to_the_run(local_run_client: LocalRunClient, created_run: TrainingRun) -> None:
    def child(kind: str, name: str, owner: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default", "labels": {"rl-operator.dev/run": owner}}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    for kind, name in (("Service", "run-0a1b2"), ("NetworkPolicy", "run-0a1b2-trainer"), ("ConfigMap", "run-source-1")):
        await local_run_client.create_child(child(kind, name, "run"))
    await local_run_client.create_child(child("ConfigMap", "run-2-0a1b2", "run-2"))
    found = {("Service", "run-0a1b2"), ("NetworkPolicy", "run-0a1b2-trainer"), ("ConfigMap", "run-source-1")}
    assert local_run_client.children(KEY) == found


async def test_the_trainer_is_polled_by_pod(local_run_client: LocalRunClient, created_run: TrainingRun) -> None:
    await local_run_client.create_child(owned_pod(created_run.metadata.uid))
    trainer = local_run_client.attempt_metrics(created_run, local_run_client.pods(KEY)[0]).trainer
    assert trainer is not None
    assert trainer.step == 7


def test_events_are_kept_and_recording_them_never_fails(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    local_run_client.record_event(created_run, "Warning", "Failed", "boom")
    path = store.layout.events(*KEY)
    kept = list(read_events(path))
    assert [(event.kind, event.reason, event.message) for event in kept] == [("Warning", "Failed", "boom")]
    assert datetime.fromisoformat(kept[0].time) <= datetime.now(UTC)
    path.unlink()
    path.mkdir()
    local_run_client.record_event(created_run, "Warning", "Failed", "boom")


def test_there_is_no_queue(local_run_client: LocalRunClient, created_run: TrainingRun) -> None:
    assert local_run_client.queue_position(created_run) is None


async def test_a_deleted_run_leaves_no_event(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    local_run_client.record_event(created_run, "Normal", "Succeeded", "All steps.")
    await local_run_client.delete_run(created_run)
    local_run_client.record_event(created_run, "Normal", "Expired", "Deleted.")
    assert not store.layout.events(*KEY).exists()


async def test_a_child_created_for_a_deleted_run_is_removed(
    local_run_client: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    """It would never be deleted: there is no garbage collector here."""
    store.delete("RLTrainingRun", "default", "run")
    with pytest.raises(GoneError, match="the run run was deleted before its Pod"):
        await local_run_client.create_child(owned_pod(created_run.metadata.uid))
