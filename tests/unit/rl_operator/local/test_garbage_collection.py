"""What listing runs cleans up."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.local.garbage_collection import abandoned, remove_expired, remove_orphaned_traces
from rl_operator.local.state.pod_logs import Event, append_event
from rl_operator.local.state.state_store import StateStore
from rl_operator.status.observed.observation import parse_time

COMPLETED = "2026-05-01T12:00:00Z"
MOMENT = parse_time(COMPLETED)


def finish(store: StateStore, ttl: int | None, phase: str = "Succeeded") -> dict[str, Any]:
    """A finished run with a ConfigMap, an event and a log."""
    spec = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    run = store.create(run_manifest("run", spec=spec, phase=phase, completionTime=COMPLETED))
    uid = run["metadata"]["uid"]
    store.create({"kind": "ConfigMap", "metadata": owned(run, "run-config")})
    append_event(store.layout.events("default", "run"), Event(COMPLETED, "Normal", "Succeeded", "All steps."))
    log = store.layout.pod("default", f"run-{uid[:5]}-1").log("trainer")
    log.parent.mkdir(parents=True)
    log.write_text("trained\n")
    return run


def owned(run: dict[str, Any], name: str, **metadata: Any) -> dict[str, Any]:
    owner = {"kind": "RLTrainingRun", "name": "run", "uid": run["metadata"]["uid"]}
    return {"namespace": "default", "name": name, "ownerReferences": [owner], **metadata}


@pytest.mark.parametrize(("seconds", "kept"), [(59, True), (60, False), (10**6, False)])
def test_a_finished_run_is_removed_when_its_time_is_up(store: StateStore, seconds: int, kept: bool) -> None:
    finish(store, ttl=60)
    remove_expired(store, MOMENT + timedelta(seconds=seconds))
    files = [path for path in store.layout.root.rglob("*") if path.is_file() and path.name != "lock"]
    assert (store.get("RLTrainingRun", "default", "run") is not None) == kept
    assert len(files) == (4 if kept else 0)


@pytest.mark.parametrize(("ttl", "phase"), [(None, "Succeeded"), (0, "Running")])
def test_a_run_without_a_time_to_live_or_an_end_is_kept(store: StateStore, ttl: int | None, phase: str) -> None:
    finish(store, ttl=ttl, phase=phase)
    remove_expired(store, MOMENT + timedelta(days=1000))
    assert store.get("RLTrainingRun", "default", "run") is not None


def test_leftovers_of_a_killed_deletion_are_found(store: StateStore) -> None:
    run = finish(store, ttl=None)
    store.create({"kind": "Pod", "metadata": owned(run, "run-1", finalizers=["keep"])})
    assert list(abandoned(store)) == []
    store.delete("RLTrainingRun", "default", "run")
    assert list(abandoned(store)) == [("default", "run")]


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
def test_files_on_disk_are_removed_with_their_run(store: StateStore, deleted: bool) -> None:
    finish(store, ttl=None)
    if deleted:
        store.delete("RLTrainingRun", "default", "run")
    remove_orphaned_traces(store)
    assert len(traces(store)) == (0 if deleted else 2)


def test_files_on_disk_stay_while_a_pod_of_the_run_ends(store: StateStore) -> None:
    run = finish(store, ttl=None)
    store.create({"kind": "Pod", "metadata": owned(run, "run-1", finalizers=["keep"])})
    store.delete("RLTrainingRun", "default", "run")
    remove_orphaned_traces(store)
    assert len(traces(store)) == 2
    store.update("Pod", "default", "run-1", lambda manifest: manifest["metadata"].update(finalizers=[]))
    remove_orphaned_traces(store)
    assert traces(store) == []


def test_a_new_run_keeps_nothing_of_its_namesake(store: StateStore) -> None:
    finish(store, ttl=None)
    store.delete("RLTrainingRun", "default", "run")
    uid = finish(store, ttl=None)["metadata"]["uid"]
    remove_orphaned_traces(store)
    assert [path.parent.parent.name for path in traces(store) if path.suffix == ".log"] == [f"run-{uid[:5]}-1"]


def traces(store: StateStore) -> list[Path]:
    return [path for folder in ("pods", "events") for path in (store.layout.root / folder).rglob("*.*")]
