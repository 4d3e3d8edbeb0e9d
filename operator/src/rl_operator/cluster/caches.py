"""The four caches and what each keeps of an object."""

from dataclasses import dataclass, field
from typing import Any

from rl_operator.api.loading import parse_run, parse_runtime
from rl_operator.api.names import RUN_LABEL
from rl_operator.api.run import TERMINAL_PHASES, Phase, RunSpec, RunStatus, TrainingRun
from rl_operator.api.runtime import Runtime
from rl_operator.cluster.client import ClusterClient
from rl_operator.cluster.resources import RUNS, RUNTIMES
from rl_operator.cluster.store import Document, Key, Store, key_of
from rl_operator.status.observation import PodObservation, observe_pod


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod as status needs it, and the finalizers that a patch must name by place."""

    observation: PodObservation
    finalizers: tuple[str, ...]


def project_run(document: Document) -> TrainingRun:
    """A run as reconciling needs it: a finished one keeps its identity and phase only. Raises DocumentError."""
    run = parse_run(document)
    return slim(run) if run.status.finished else run


def slim(run: TrainingRun) -> TrainingRun:
    """Thousands of finished runs stay around: no reconcile reads more of them than this, and they share the rest."""
    metadata = run.metadata.with_changes(labels=_EMPTY, annotations=_EMPTY, finalizers=())
    return run.with_changes(metadata=metadata, spec=_UNREAD_SPEC, status=_ENDS[run.status.phase])


_EMPTY: dict[str, str] = {}
_UNREAD_SPEC = RunSpec(environment="-")
_ENDS: dict[Phase | None, RunStatus] = {phase: RunStatus(phase=phase) for phase in TERMINAL_PHASES}


def project_pod(document: Document) -> HeldPod:
    return HeldPod(observe_pod(document), tuple(document["metadata"].get("finalizers", ())))


def run_of_child(document: Document) -> Key | None:
    """The run that a child's label names."""
    name = document["metadata"].get("labels", {}).get(RUN_LABEL)
    return (document["metadata"]["namespace"], name) if name else None


def _nothing(_: Document) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Caches:
    runs: Store[TrainingRun] = field(default_factory=lambda: Store(project_run, key_of))
    runtimes: Store[Runtime] = field(default_factory=lambda: Store(parse_runtime, _nothing))
    pods: Store[HeldPod] = field(default_factory=lambda: Store(project_pod, run_of_child))
    config_maps: Store[None] = field(default_factory=lambda: Store(_nothing, run_of_child))


async def list_own_kinds(client: ClusterClient, caches: Caches, namespace: str | None) -> None:
    """Make the caches of runs and runtimes complete, and forget what vanished while nobody watched.

    kopf's watch feeds them in between; it never tells of objects that vanished during an outage.
    """
    await _list(client, RUNTIMES.path(), caches.runtimes)
    await _list(client, RUNS.path(namespace), caches.runs)


async def _list(client: ClusterClient, path: str, store: Store[Any]) -> None:
    listed: set[Key] = set()

    def take(document: dict[str, Any]) -> None:
        listed.add(key_of(document))
        store.put(document)

    version = await client.each(path, {}, take)
    store.sweep(listed, int(version))
