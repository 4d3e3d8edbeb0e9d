"""Removes what is no longer needed from the state folder. A cluster has a garbage collector and an operator that never
ends; here every command that lists runs does it.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from rl_operator.api.names import RUN_KIND
from rl_operator.local.interpreters.interpreters import remove_unused
from rl_operator.local.programs.leash import end_left_over
from rl_operator.local.state.layout import Layout, PodFolder
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, GoneError

Key = tuple[str, str]


def collect_garbage(store: StateStore, now: datetime, look_after: Callable[[str, str], None]) -> None:
    """All of it. `look_after` gets namespace and name of a run whose deletion was interrupted."""
    remove_expired(store, now)
    for namespace, name in abandoned(store):
        look_after(namespace, name)
    remove_orphaned_traces(store)
    remove_unused(store.layout)


def remove_expired(store: StateStore, now: datetime) -> None:
    """Delete finished runs whose `ttlSecondsAfterFinished` is over, with their files."""
    for run in store.list_all(RUN_KIND):
        # Most runs are kept forever, and importing the kinds costs rlctl's start-up time.
        if run["spec"].get("ttlSecondsAfterFinished") is None or "completionTime" not in run.get("status", {}):
            continue
        from rl_operator.api.training_run import TrainingRun
        from rl_operator.status.attempt.pod_cleanup import expires_at

        moment = expires_at(TrainingRun.model_validate(run))
        if moment is None or moment > now:
            continue
        metadata = run["metadata"]
        place, version = (metadata["namespace"], metadata["name"]), metadata["resourceVersion"]
        with contextlib.suppress(GoneError, ConflictError):  # another process was faster, or has just edited it
            store.delete(RUN_KIND, *place, uid=metadata["uid"], resource_version=version)
            remove_traces(store.layout, *place, metadata["uid"])


def abandoned(store: StateStore) -> Iterator[Key]:
    """The deleted runs whose pods still exist: the process that deleted them was killed before it was done."""
    for pod in store.list_all("Pod"):
        for owner in pod["metadata"].get("ownerReferences", []):
            key = pod["metadata"]["namespace"], owner["name"]
            run = store.get(RUN_KIND, *key)
            if run is None or run["metadata"]["uid"] != owner["uid"]:
                yield key


def remove_orphaned_traces(store: StateStore) -> None:
    """Remove the events, logs and working folders of runs that are gone with their pods: a deletion was interrupted."""
    folders, events = store.layout.all_pod_folders, store.layout.all_events  # before the runs: what is new has a run
    pods = [pod["metadata"] for pod in store.list_all("Pod")]
    owners = {(m["namespace"], m["name"], m["uid"]) for m in (run["metadata"] for run in store.list_all(RUN_KIND))}
    owners |= {(m["namespace"], each["name"], each["uid"]) for m in pods for each in m.get("ownerReferences", [])}
    prefixes = tuple(f"{namespace}/{name}-{uid[:5]}-" for namespace, name, uid in owners)
    for folder in folders:
        if not f"{folder.parent.name}/{folder.name}".startswith(prefixes):
            _remove(folder)
    named = {(namespace, name) for namespace, name, _ in owners}
    for log in events:
        key = log.parent.name, log.stem
        if key in named:
            continue
        with store.exclusive():  # a new run may take the name now
            if store.get(RUN_KIND, *key) is None:
                log.unlink(missing_ok=True)


def remove_traces(layout: Layout, namespace: str, name: str, uid: str) -> None:
    for path in (layout.events(namespace, name), layout.clock(namespace, name)):
        path.unlink(missing_ok=True)
    for folder in layout.pod_folders(namespace, name, uid):
        _remove(folder)


def _remove(folder: Path) -> None:
    """With the processes still running in it: a run's pods have ended by now, but a trial may still be running."""
    for lock in PodFolder(folder).locks:
        end_left_over(lock)
    shutil.rmtree(folder, ignore_errors=True)
