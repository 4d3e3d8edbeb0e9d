"""The local target as a reconcile sees it."""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Literal, cast

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import ConfigMapObject, KubernetesObject, Manifest, PodObject, PolicyPeer
from rl_operator.api.names import NAMESPACE_NAME_LABEL, POD_FINALIZER, RUN_KIND, RUN_LABEL, STARTED_AS_ANNOTATION
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.local.garbage_collection import remove_traces
from rl_operator.local.interpreters.installed_catalogs import local_catalog
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.model_runtimes import local_runtimes
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.local.pods.kubelet import KUBELET_FINALIZER
from rl_operator.local.state.pod_logs import Event, append_event
from rl_operator.local.state.state_store import Change, StateStore, without_finalizer
from rl_operator.operator_errors import GoneError, NameTakenError
from rl_operator.render.catalog_and_history import history_config_map, history_content, stored_history
from rl_operator.render.frozen_texts import require_as_created
from rl_operator.status.attempt.restored import mark_of
from rl_operator.status.attempt.view import QueuePosition
from rl_operator.status.observed.attempt_metrics import AttemptMetrics, MetricsSource
from rl_operator.status.observed.history import extended, joined, read_points, thinned
from rl_operator.status.observed.observation import PodObservation, format_time, observe_pod

Key = tuple[str, str]

NODE_NAME = "localhost"

_CHILD_KINDS = ("ConfigMap", "Service", "NetworkPolicy")
"""Besides pods. Services and NetworkPolicies are kept for inspection and have no effect: everything is loopback."""


class LocalRunClient:
    """Implements `reconcile.run_client.RunClient` over a state folder."""

    ops_peers: Sequence[PolicyPeer] = ()

    def __init__(
        self,
        store: StateStore,
        environments: OwnEnvironments,
        attempt_metrics: MetricsSource,
        interpreters: Interpreters,
    ) -> None:
        self._store = store
        self._environments = environments
        self._metrics = attempt_metrics
        self._interpreters = interpreters

    # --- reads --------------------------------------------------------------------------------------------------
    def run(self, key: Key) -> TrainingRun | None:
        manifest = self._store.get(RUN_KIND, *key)
        return TrainingRun.model_validate(manifest).without_sandbox_pods if manifest else None

    def runtime(self, name: str) -> Runtime | None:
        return local_runtimes(self._store).get(name)

    def runtime_names(self) -> tuple[str, ...]:
        return tuple(sorted(local_runtimes(self._store)))

    def unreadable_runtime(self, name: str) -> Refusal | None:  # noqa: ARG002 -- those that ship can be read
        return None

    def catalog(self, runtime: Runtime) -> Catalog | None:  # noqa: ARG002 -- on a cluster it depends on the image
        return local_catalog(bundled_catalog(), self._interpreters)

    async def environment(self, run: TrainingRun) -> Environment | None:
        return await self._environments.of_run(run)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {NAMESPACE_NAME_LABEL: namespace}

    def namespace_is_deleted(self, namespace: str) -> bool:  # noqa: ARG002 -- the names of folders
        return False

    def children(self, key: Key) -> frozenset[tuple[str, str]]:
        namespace, name = key
        children = (each for kind in _CHILD_KINDS for each in self._store.list_all(kind, namespace, prefix=f"{name}-"))
        return frozenset((child["kind"], child["metadata"]["name"]) for child in children if _is_of_run(child, name))

    def is_verified(self, run: TrainingRun) -> bool:  # noqa: ARG002 -- reading it costs next to nothing
        return False

    def hold_verified(self, config_map: KubernetesObject) -> None:
        pass

    async def read_files(self, environment: Environment) -> Mapping[str, str] | None:
        return await self._environments.files(environment)

    def pods(self, key: Key) -> tuple[PodObservation, ...]:
        return tuple(observe_pod(pod) for pod in pods_of(self._store, key))

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        return self._metrics.attempt_metrics(run, pod)

    def queue_position(self, run: TrainingRun) -> QueuePosition | None:  # noqa: ARG002 -- limits are a cluster's: here everybody starts
        return None

    def slot_claimed(self, run: TrainingRun) -> AbstractContextManager[None]:  # noqa: ARG002 -- nobody waits
        return contextlib.nullcontext()

    def free_slot(self, pod: PodObservation) -> None:
        pass

    async def read_run(self, key: Key) -> TrainingRun | None:
        return self.run(key)

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        return self._store.get("ConfigMap", namespace, name)

    async def read_pod(self, namespace: str, name: str) -> PodObservation | None:
        pod = self._store.pod(namespace, name)
        return observe_pod(pod) if pod else None

    # --- writes -------------------------------------------------------------------------------------------------
    async def create_child(self, manifest: KubernetesObject) -> None:
        child = _scheduled(cast("PodObject", manifest)) if manifest["kind"] == "Pod" else manifest
        try:
            self._store.create(child)
        except NameTakenError:
            if not self._is_already_there(child):
                raise
        self._collect_orphan(child)

    async def delete_pod(self, pod: PodObservation) -> None:
        with contextlib.suppress(GoneError):
            self._store.delete("Pod", pod.namespace, pod.name, uid=pod.uid)

    async def remove_gates(self, pod: PodObservation) -> None:
        """Here pods have none."""

    async def label_pod(self, pod: PodObservation, labels: Mapping[str, str]) -> None:
        def label(manifest: Manifest) -> None:
            manifest["metadata"]["labels"] = {**manifest["metadata"].get("labels", {}), **labels}

        self._store.update("Pod", pod.namespace, pod.name, label, uid=pod.uid)

    async def save_history(self, run: TrainingRun, pod: PodObservation) -> None:
        points, name, namespace = self._metrics.points(pod), run.status.history_name, run.metadata.namespace
        if not points or not name:
            return
        found = extended(points, pod.result, run.status)

        def go_on(manifest: Manifest) -> None:  # with what earlier attempts left
            manifest["data"] = history_content(thinned(joined(read_points(stored_history(manifest)), found)))

        if self._store.get("ConfigMap", namespace, name):
            self._store.update("ConfigMap", namespace, name, go_on)
        else:
            self._store.create(history_config_map(run, name, thinned(found)))

    async def remove_finalizer(self, pod: PodObservation) -> None:
        with contextlib.suppress(GoneError):
            self._store.update("Pod", pod.namespace, pod.name, without_finalizer(POD_FINALIZER), uid=pod.uid)

    async def delete_run(self, run: TrainingRun) -> None:
        metadata = run.metadata
        place = (RUN_KIND, metadata.namespace, metadata.name)
        with contextlib.suppress(GoneError):
            self._store.delete(*place, uid=metadata.uid, resource_version=metadata.resource_version)
            remove_traces(self._store.layout, metadata.namespace, metadata.name, metadata.uid)

    async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
        return self._write_run(run, lambda manifest: manifest.update(status=status.to_wire()))

    async def mark_started(self, run: TrainingRun) -> TrainingRun:
        def mark(manifest: Manifest) -> None:
            manifest["metadata"].setdefault("annotations", {})[STARTED_AS_ANNOTATION] = mark_of(run)

        return self._write_run(run, mark)

    def _write_run(self, run: TrainingRun, change: Change) -> TrainingRun:
        """Change exactly this version of the run."""
        metadata = run.metadata
        place = (RUN_KIND, metadata.namespace, metadata.name)
        written = self._store.update(*place, change, uid=metadata.uid, resource_version=metadata.resource_version)
        return TrainingRun.model_validate(written)

    def record_event(self, run: TrainingRun, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        place = run.metadata.namespace, run.metadata.name
        if self._store.version(RUN_KIND, *place) is None:
            return  # the run was deleted, and its event log with it
        event = Event(format_time(datetime.now(UTC)), kind, reason, message, run.metadata.uid)
        with contextlib.suppress(OSError):  # an event is information, never a reason to stop
            append_event(self._store.layout.events(*place), event)

    def _collect_orphan(self, child: KubernetesObject) -> None:
        """Remove what was created for a run that was deleted meanwhile: there is no garbage collector here."""
        kind, namespace, name = child["kind"], child["metadata"]["namespace"], child["metadata"]["name"]
        owners = [each for each in child["metadata"].get("ownerReferences", []) if each["kind"] == RUN_KIND]
        for owner in owners:
            run = self._store.get(RUN_KIND, namespace, owner["name"])
            if run is None or run["metadata"]["uid"] != owner["uid"]:
                self._store.delete(kind, namespace, name)
                raise GoneError(f"the run {owner['name']} was deleted before its {kind} {name} was created")

    def _is_already_there(self, child: KubernetesObject) -> bool:
        metadata = child["metadata"]
        existing = self._store.get(child["kind"], metadata["namespace"], metadata["name"])
        if existing is None or "deletionTimestamp" in existing["metadata"]:
            return False
        wanted = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
        ours = any(owner["uid"] in wanted for owner in existing["metadata"].get("ownerReferences", []))
        if ours:
            require_as_created(existing, child)
        return ours


def _scheduled(pod: PodObject) -> PodObject:
    """The pod as a scheduler and a kubelet leave it: bound to this machine, and held until its processes are gone."""
    finalizers = [*pod["metadata"].get("finalizers", []), KUBELET_FINALIZER]
    return {
        **pod,
        "metadata": {**pod["metadata"], "finalizers": finalizers},
        "spec": {**pod["spec"], "nodeName": NODE_NAME},
    }


def pods_of(store: StateStore, key: Key) -> tuple[PodObject, ...]:
    """All pods that carry this run's label."""
    namespace, name = key
    return tuple(pod for pod in store.pods(namespace, f"{name}-") if _is_of_run(pod, name))


def _is_of_run(child: KubernetesObject, name: str) -> bool:
    return bool(child["metadata"].get("labels", {}).get(RUN_LABEL) == name)
