"""What a reconcile reads from a cluster and writes to it (`reconcile.run_client.RunClient`)."""

import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import (
    ConfigMapObject,
    KubernetesObject,
    Manifest,
    ManifestMetadata,
    PolicyPeer,
)
from rl_operator.api.names import (
    API_VERSION,
    NAMESPACE_NAME_LABEL,
    OWN_PREFIX,
    POD_FINALIZER,
    RUN_KIND,
    STARTED_AS_ANNOTATION,
)
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import JSON_PATCH, METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.api_server.resources import CONFIG_MAPS, PODS, RUNS, create_ours, find, save_config_map
from rl_operator.cluster.cache.caches import Caches, UnreadableRuntime
from rl_operator.cluster.cache.resource_cache import Key, key_of
from rl_operator.documents.merge_patch import merge_patch
from rl_operator.documents.parse import parse_stored_run
from rl_operator.operator_errors import ConflictError, GoneError, InvalidError
from rl_operator.render.catalog_and_history import history_config_map, stored_history
from rl_operator.status.attempt.restored import mark_of
from rl_operator.status.attempt.view import QueuePosition
from rl_operator.status.observed.attempt_metrics import AttemptMetrics, MetricsSource
from rl_operator.status.observed.history import Point, extended, joined, read_points, thinned
from rl_operator.status.observed.observation import PodObservation, observe_pod


class ClusterRunClient:
    """Reads come from the caches; the response to every write goes into them, so that the next reconcile sees it."""

    def __init__(
        self,
        client: ClusterClient,
        caches: Caches,
        recorder: EventRecorder,
        attempt_metrics: MetricsSource,
        ops_peers: Sequence[PolicyPeer] = (),
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._metrics = attempt_metrics
        self.ops_peers = ops_peers
        self._verified: dict[Key, str] = {}
        """UIDs of ConfigMaps whose content is known; it cannot change."""

        caches.config_maps.on_change(lambda key, _: self._config_map_changed(key))

    # --- cached reads -------------------------------------------------------------------------------------------
    def run(self, key: Key) -> TrainingRun | None:
        return self._caches.runs.get(key)

    def runtime(self, name: str) -> Runtime | None:
        held = self._caches.runtimes.get(("", name))
        return held if isinstance(held, Runtime) else None

    def unreadable_runtime(self, name: str) -> Refusal | None:
        held = self._caches.runtimes.get(("", name))
        return held.faults[0] if isinstance(held, UnreadableRuntime) else None

    def runtime_names(self) -> tuple[str, ...]:
        return self._caches.runtimes.names()

    def catalog(self, runtime: Runtime) -> Catalog | None:
        found = self._caches.catalogs.of(runtime.spec.image_of_environments)
        return found.catalog if found else None

    async def environment(self, run: TrainingRun) -> Environment | None:
        name = run.spec.environment
        if not name.startswith(OWN_PREFIX):
            return None
        return self._caches.environments.get((run.metadata.namespace, name.removeprefix(OWN_PREFIX)))

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self._caches.namespaces.get(("", namespace))
        return found.labels if found else {NAMESPACE_NAME_LABEL: namespace}

    def namespace_is_deleted(self, namespace: str) -> bool:
        found = self._caches.namespaces.get(("", namespace))
        return found is not None and found.deleting

    def children(self, key: Key) -> frozenset[tuple[str, str]]:
        stores = self._caches.children.items()
        return frozenset((kind, name) for kind, store in stores if kind != "Pod" for name in store.names_of_run(key))

    def _config_map_changed(self, key: Key) -> None:
        self._caches.immutable_config_maps.forget(key)
        if self._caches.config_maps.uid_of(key) != self._verified.get(key):
            self._verified.pop(key, None)

    def is_verified(self, run: TrainingRun) -> bool:
        return (run.metadata.namespace, run.status.config_map_name or "") in self._verified

    def hold_verified(self, config_map: KubernetesObject) -> None:
        self._verified[key_of(config_map)] = config_map["metadata"]["uid"]

    async def read_files(self, environment: Environment) -> Mapping[str, str] | None:
        if environment.spec.source is None:
            return None
        source = environment.spec.source.config_map
        found = await self.read_config_map(environment.metadata.namespace, source.name)
        return dict(found.get("data", {})) if found else None

    def pods(self, key: Key) -> tuple[PodObservation, ...]:
        return self._caches.pods.of_run(key)

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        return self._metrics.attempt_metrics(run, pod)

    def queue_position(self, run: TrainingRun) -> QueuePosition | None:
        known = run.status.queue
        if known and self.runtime(run.spec.runtime) is None:  # its limits come back with it
            return QueuePosition(known.limit, known.limit, known.place - 1, known.namespace)
        return self._caches.runtime_queues.queue_position(run)

    def free_slot(self, pod: PodObservation) -> None:
        self._caches.runtime_queues.pod_changed((pod.namespace, pod.name), None)

    def slot_claimed(self, run: TrainingRun) -> AbstractContextManager[None]:
        return self._caches.runtime_queues.claimed(run)

    # --- live reads ---------------------------------------------------------------------------------------------
    async def read_run(self, key: Key) -> TrainingRun | None:
        uid = self._caches.runs.uid_of(key)
        try:
            document = await self._client.get(RUNS.path(*key))
        except GoneError:
            self._caches.runs.forget(key, uid)
            return None
        return self._taken(document)

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        key = namespace, name
        if held := self._caches.immutable_config_maps.get(key):
            return held
        found = await find(self._client, CONFIG_MAPS, namespace, name)
        if found is not None and found["metadata"]["uid"] == self._caches.config_maps.uid_of(key):
            self._caches.immutable_config_maps.hold(found)  # others are not watched: their end would not be seen
        return found

    async def read_pod(self, namespace: str, name: str) -> PodObservation | None:
        document = await find(self._client, PODS, namespace, name)
        if document is None:
            return None
        self._caches.pods.put_answer(document)
        return observe_pod(document)

    # --- writes -------------------------------------------------------------------------------------------------
    async def create_child(self, manifest: KubernetesObject) -> None:
        # Pods and ConfigMaps would come back larger than they were sent; the watch brings what a new pod's status says.
        answer = await create_ours(self._client, manifest, accept=METADATA_ONLY)
        self._caches.children[manifest["kind"]].put_answer(answer)
        if manifest["kind"] == "ConfigMap":
            self.hold_verified(answer)

    async def delete_pod(self, pod: PodObservation) -> None:
        try:
            answer = await self._client.delete(PODS.path(pod.namespace, pod.name), pod.uid)
        except (GoneError, ConflictError):
            return  # gone, or another pod has its name by now
        if answer["kind"] == "Pod":
            self._caches.pods.put_answer(answer)

    async def remove_gates(self, pod: PodObservation) -> None:
        body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": None}}
        with contextlib.suppress(GoneError):
            self._caches.pods.put_answer(await self._client.patch(PODS.path(pod.namespace, pod.name), body))

    async def label_pod(self, pod: PodObservation, labels: Mapping[str, str]) -> None:
        body = {"metadata": {"uid": pod.uid, "labels": labels}}
        self._caches.pods.put_answer(await self._client.patch(PODS.path(pod.namespace, pod.name), body))

    async def save_history(self, run: TrainingRun, pod: PodObservation) -> None:
        points, name = self._metrics.points(pod), run.status.history_name
        if not points or not name:
            return
        there = ("ConfigMap", name) in self.children(run.key)
        existing = await self.read_config_map(run.metadata.namespace, name) if there else None
        answer = await write_history(self._client, run, extended(points, pod.result, run.status), existing)
        self._caches.config_maps.put_answer(answer)

    async def remove_finalizer(self, pod: PodObservation) -> None:
        held = self._caches.pods.get((pod.namespace, pod.name))
        try:
            if held and not await self._patch_out(pod, held.finalizers):
                live = await self._client.get(PODS.path(pod.namespace, pod.name))
                await self._patch_out(pod, tuple(live["metadata"].get("finalizers", ())))
        except GoneError:
            return

    async def _patch_out(self, pod: PodObservation, finalizers: tuple[str, ...]) -> bool:
        """Remove our finalizer from exactly that pod; False if its finalizers are not as given (anymore)."""
        if POD_FINALIZER not in finalizers:
            return True
        place = f"/metadata/finalizers/{finalizers.index(POD_FINALIZER)}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": place, "value": POD_FINALIZER},
            {"op": "remove", "path": place},
        ]
        try:
            answer = await self._client.patch(PODS.path(pod.namespace, pod.name), patch, JSON_PATCH)
        except InvalidError:
            return False
        self._caches.pods.put_answer(answer)
        return True

    async def delete_run(self, run: TrainingRun) -> None:
        metadata = run.metadata
        path = RUNS.path(metadata.namespace, metadata.name)
        with contextlib.suppress(GoneError):
            await self._client.delete(path, metadata.uid, metadata.resource_version)

    async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
        """Only what changes; but of a run that nothing was said about yet, all: that costs the API server less."""
        path, metadata = RUNS.path(*run.key, "status"), _version(run)
        said: Manifest = {"metadata": metadata, "status": merge_patch(run.status.to_wire(), status.to_wire())}
        if run.status.phase is not None:
            return await self._written(run, self._client.patch(path, said))
        namespace, name = run.key  # the API server looks at nothing else in an update of a status
        identity = {"namespace": namespace, "name": name, **metadata}
        whole = {"apiVersion": API_VERSION, "kind": RUN_KIND, **said, "metadata": identity}
        return await self._written(run, self._client.update(path, whole))

    async def mark_started(self, run: TrainingRun) -> TrainingRun:
        body = {"metadata": {**_version(run), "annotations": {STARTED_AS_ANNOTATION: mark_of(run)}}}
        return await self._written(run, self._client.patch(RUNS.path(*run.key), body))

    async def _written(self, run: TrainingRun, write: Awaitable[Manifest]) -> TrainingRun:
        try:
            answer = await write
        except ConflictError:
            await self.read_run(run.key)  # the next try starts from the live object
            raise
        except GoneError:
            self._caches.runs.forget(run.key, run.metadata.uid)
            raise
        return self._taken(answer)

    def _taken(self, document: Manifest) -> TrainingRun:
        """A response about a run, parsed and cached. What the cache holds in full is not parsed twice."""
        self._caches.runs.put_answer(document)
        held, version = self._caches.runs.get(key_of(document)), document["metadata"]["resourceVersion"]
        whole = held is not None and not held.status.finished and held.metadata.resource_version == version
        return held if held and whole else parse_stored_run(document)

    def record_event(self, run: TrainingRun, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._recorder.record(run, kind, reason, message)


def _version(run: TrainingRun) -> ManifestMetadata:
    """The API server takes a patch with it only while this version of the run is the live one."""
    return {"uid": run.metadata.uid, "resourceVersion": run.metadata.resource_version}


async def write_history(
    client: ClusterClient, run: TrainingRun, points: Sequence[Point], existing: ConfigMapObject | None
) -> ConfigMapObject:
    """The current ConfigMap. `existing` is what earlier attempts left.

    Raises NameTakenError if it does not belong to this run.
    """
    before = read_points(stored_history(existing)) if existing else ()
    manifest = history_config_map(run, run.status.history_name or "", thinned(joined(before, points)))
    return await (save_config_map(client, manifest, existing) if existing else create_ours(client, manifest))
