"""The local target keeps the promises of `reconcile.run_client.RunClient`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator.local.pod_examples import container, pod
from tests.unit.rl_operator.targets.fakes import run_manifest
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
def over_store(store: StateStore) -> LocalRunClient:
    environments = OwnEnvironments(store.get, nothing_found)
    return LocalRunClient(
        store, environments, ToldMetrics({"run-00000-1": ObservedTrainer(step=7)}), Interpreters(store.layout, {})
    )


@pytest.fixture
def created_run(store: StateStore, over_store: LocalRunClient) -> TrainingRun:
    store.create(run_manifest("run"))
    created = over_store.run(KEY)
    assert created is not None
    return created


def owned_pod(uid: str) -> dict[str, Any]:
    manifest = pod(container("trainer", "pass"))
    manifest["metadata"] |= {
        "finalizers": ["rl-operator.dev/result"],
        "ownerReferences": [{"kind": "RLTrainingRun", "name": "run", "uid": uid, "controller": True}],
    }
    return manifest


def test_runtimes_and_catalog_are_the_shipped_ones(over_store: LocalRunClient) -> None:
    assert over_store.runtime_names() == ("default", "tiny")
    tiny = over_store.runtime("tiny")
    assert tiny is not None
    catalog = over_store.catalog(tiny)
    assert catalog is not None
    assert "sort_digits" in catalog.names
    assert over_store.runtime("other") is None


async def test_creating_a_child_again_is_success_only_if_it_is_ours(
    over_store: LocalRunClient, created_run: TrainingRun
) -> None:
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    assert [p.name for p in over_store.pods(KEY)] == ["run-00000-1"]
    with pytest.raises(NameTakenError):
        await over_store.create_child(owned_pod("another run's uid"))


async def test_a_name_that_is_being_deleted_is_taken(over_store: LocalRunClient, created_run: TrainingRun) -> None:
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    await over_store.delete_pod(over_store.pods(KEY)[0])
    assert over_store.pods(KEY)[0].deleting
    with pytest.raises(NameTakenError):
        await over_store.create_child(owned_pod(created_run.metadata.uid))


async def test_a_pod_is_bound_to_this_machine_and_held_by_its_kubelet(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    observed = over_store.pods(KEY)[0]
    assert observed.node == "localhost"
    assert observed.held
    await over_store.remove_finalizer(observed)
    await over_store.remove_finalizer(observed)
    assert not over_store.pods(KEY)[0].held
    await over_store.delete_pod(observed)
    kept = store.get("Pod", "default", "run-00000-1")
    assert kept is not None
    assert kept["metadata"]["finalizers"] == ["rl-operator.dev/kubelet"]


async def test_deleting_and_releasing_missing_pods_is_success(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    observed = over_store.pods(KEY)[0]
    store.update("Pod", "default", "run-00000-1", lambda manifest: manifest["metadata"].update(finalizers=[]))
    store.delete("Pod", "default", "run-00000-1")
    await over_store.delete_pod(observed)
    await over_store.remove_finalizer(observed)


async def test_a_status_is_written_against_the_version_read(
    over_store: LocalRunClient, created_run: TrainingRun
) -> None:
    written = await over_store.write_status(created_run, created_run.status.with_changes(phase="Starting"))
    assert written.status.phase == "Starting"
    assert written.metadata.generation == created_run.metadata.generation
    assert await over_store.read_run(KEY) == written
    with pytest.raises(ConflictError):
        await over_store.write_status(created_run, created_run.status.with_changes(phase="Running"))


async def test_the_status_of_a_missing_run(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    store.delete("RLTrainingRun", "default", "run")
    with pytest.raises(GoneError):
        await over_store.write_status(created_run, created_run.status.with_changes(phase="Starting"))
    assert over_store.run(KEY) is None


async def test_pods_of_a_run_with_a_similar_name_are_not_mixed_up(
    over_store: LocalRunClient, created_run: TrainingRun
) -> None:
    other = owned_pod(created_run.metadata.uid)
    other["metadata"] |= {"name": "run-2-00000-1", "labels": {"rl-operator.dev/run": "run-2"}}
    await over_store.create_child(other)
    assert over_store.pods(KEY) == ()
    assert [p.name for p in over_store.pods(("default", "run-2"))] == ["run-2-00000-1"]


async def test_children_belong_to_the_run(over_store: LocalRunClient, created_run: TrainingRun) -> None:
    def child(kind: str, name: str, owner: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default", "labels": {"rl-operator.dev/run": owner}}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    for kind, name in (("Service", "run-0a1b2"), ("NetworkPolicy", "run-0a1b2-trainer"), ("ConfigMap", "run-source-1")):
        await over_store.create_child(child(kind, name, "run"))
    await over_store.create_child(child("ConfigMap", "run-2-0a1b2", "run-2"))
    found = {("Service", "run-0a1b2"), ("NetworkPolicy", "run-0a1b2-trainer"), ("ConfigMap", "run-source-1")}
    assert over_store.children(KEY) == found


async def test_the_trainer_is_polled_by_pod(over_store: LocalRunClient, created_run: TrainingRun) -> None:
    await over_store.create_child(owned_pod(created_run.metadata.uid))
    trainer = over_store.attempt_metrics(created_run, over_store.pods(KEY)[0]).trainer
    assert trainer is not None
    assert trainer.step == 7


def test_events_are_kept_and_recording_them_never_fails(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    over_store.record_event(created_run, "Warning", "Failed", "boom")
    path = store.layout.events(*KEY)
    kept = list(read_events(path))
    assert [(event.kind, event.reason, event.message) for event in kept] == [("Warning", "Failed", "boom")]
    assert datetime.fromisoformat(kept[0].time) <= datetime.now(UTC)
    path.unlink()
    path.mkdir()
    over_store.record_event(created_run, "Warning", "Failed", "boom")


async def test_a_deleted_run_leaves_no_event(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    over_store.record_event(created_run, "Normal", "Succeeded", "All steps.")
    await over_store.delete_run(created_run)
    over_store.record_event(created_run, "Normal", "Expired", "Deleted.")
    assert not store.layout.events(*KEY).exists()


async def test_a_child_created_for_a_deleted_run_is_removed(
    over_store: LocalRunClient, created_run: TrainingRun, store: StateStore
) -> None:
    """It would never be deleted: there is no garbage collector here."""
    store.delete("RLTrainingRun", "default", "run")
    with pytest.raises(GoneError, match="the run run was deleted before its Pod"):
        await over_store.create_child(owned_pod(created_run.metadata.uid))
