"""What nobody needs any more of the state folder. A cluster has a garbage collector and an operator that never ends;
here it is done by whoever looks at the runs.
"""

import contextlib
import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rl_operator.api.names import RUN_KIND
from rl_operator.errors import ConflictError, GoneError
from rl_operator.local.layout import Layout
from rl_operator.local.store import Manifest, Store

Key = tuple[str, str]


def remove_expired(store: Store, now: datetime) -> None:
    """Delete finished runs whose `ttlSecondsAfterFinished` is over, with what they left on disk."""
    for run in store.list_all(RUN_KIND):
        metadata = run["metadata"]
        if not _may_expire(run) or not _is_expired(run, now):
            continue
        place, version = (metadata["namespace"], metadata["name"]), metadata["resourceVersion"]
        with contextlib.suppress(GoneError, ConflictError):  # somebody was faster, or has just edited it
            store.delete(RUN_KIND, *place, uid=metadata["uid"], resource_version=version)
            remove_traces(store.layout, *place, metadata["uid"])


def abandoned(store: Store) -> Iterator[Key]:
    """The runs that are gone and whose pods are still there: who deleted them was killed over it."""
    for pod in store.list_all("Pod"):
        for owner in pod["metadata"].get("ownerReferences", []):
            key = pod["metadata"]["namespace"], owner["name"]
            run = store.get(RUN_KIND, *key)
            if run is None or run["metadata"]["uid"] != owner["uid"]:
                yield key


def remove_traces(layout: Layout, namespace: str, name: str, uid: str) -> None:
    """Remove a deleted run's events, logs and working folders."""
    layout.events(namespace, name).unlink(missing_ok=True)
    for folder in layout.pod_folders(namespace, name, uid):
        shutil.rmtree(folder, ignore_errors=True)


def _may_expire(run: dict[str, Any]) -> bool:
    """Cheap: most runs keep for ever, and reading the kinds costs rlctl's start-up time."""
    return run["spec"].get("ttlSecondsAfterFinished") is not None and "completionTime" in run.get("status", {})


def _is_expired(run: Manifest, now: datetime) -> bool:
    from rl_operator.api.run import TrainingRun
    from rl_operator.status.expiry import expires_at

    moment = expires_at(TrainingRun.model_validate(run))
    return moment is not None and moment <= now
