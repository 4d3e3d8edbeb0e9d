"""The caches and which parts of an object each keeps."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from sys import intern
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import (
    ConfigMapObject,
    KubernetesObject,
    Manifest,
    ManifestMetadata,
    NetworkPolicyObject,
    PodObject,
    ServiceObject,
)
from rl_operator.api.model import ObjectMeta
from rl_operator.api.names import ENVIRONMENT_PLURAL, RUN_LABEL, RUN_PLURAL, RUNTIME_KIND, RUNTIME_PLURAL, SLOT_GATE
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Limits, Runtime, RuntimeStatus
from rl_operator.api.status_fields import TERMINAL_PHASES, Phase, RunStatus
from rl_operator.api.training_run import RunSpec, TrainingRun
from rl_operator.cluster.api_server.client import METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.resources import CONFIG_MAPS, ENVIRONMENTS, NAMESPACES, RUNS, RUNTIMES
from rl_operator.cluster.cache.informer import list_into
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache, key_of
from rl_operator.cluster.cache.run_indexes import RuntimeQueues, Unstarted
from rl_operator.documents.parse import DocumentError, parse_environment, parse_runtime, parse_stored_run
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.render.catalog_and_history import CATALOG_SELECTOR, ImageCatalog, stored_catalog
from rl_operator.status.final_status import is_as_written
from rl_operator.status.observed.observation import PodObservation, observe_pod

MOST_CHARACTERS: Final = 4_000_000
"""Those of about 250 runs with sandboxes."""

_READ_LATER: Final = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
"""Of the metadata: whose it is, and which."""


class ImmutableConfigMaps:
    """ConfigMaps that cannot change, read once: what pods are made from would otherwise be read for each of them.

    By namespace and name; those that were not asked for longest make room. Nothing here is a memory of what happened:
    what the watch shows in another version (its owners may change), or as gone, is forgotten; what is absent is read.
    """

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_characters = most_characters
        self._held: OrderedDict[Key, ConfigMapObject] = OrderedDict()
        self._characters = 0

    def get(self, key: Key) -> ConfigMapObject | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def hold(self, config_map: ConfigMapObject) -> None:
        """Keep what is read of it later, if the API server says that it cannot change."""
        if not config_map.get("immutable") or config_map.get("binaryData"):
            return  # none of ours has binary data
        key = key_of(config_map)
        self.forget(key)
        kept = self._held[key] = _kept(config_map)
        self._characters += _characters(kept)
        while self._characters > self._most_characters:
            self.forget(next(iter(self._held)))

    def forget(self, key: Key) -> None:
        if (kept := self._held.pop(key, None)) is not None:
            self._characters -= _characters(kept)


def _kept(config_map: ConfigMapObject) -> ConfigMapObject:
    metadata, kept = config_map["metadata"], ManifestMetadata()
    for name in _READ_LATER:
        if name in metadata:
            kept[name] = metadata[name]
    return {"metadata": kept, "immutable": True, "data": config_map.get("data") or {}}


def _characters(kept: ConfigMapObject) -> int:
    texts = kept["data"]
    return len(str(kept["metadata"])) + sum(map(len, texts)) + sum(map(len, texts.values()))


class Catalogs:
    """The catalog of each image: known at once for the image that this package was built with, else after reading it.

    By image reference: runtimes of the same image share one.
    """

    def __init__(self, bundled_images: AbstractSet[str] = frozenset()) -> None:
        self._bundled = bundled_images
        self._read: dict[str, ImageCatalog] = {}

    def is_bundled(self, image: str) -> bool:
        return image in self._bundled

    def of(self, image: str) -> ImageCatalog | None:
        """None: the image has not been read yet."""
        return ImageCatalog(bundled_catalog()) if image in self._bundled else self._read.get(image)

    def hold(self, image: str, found: ImageCatalog) -> None:
        self._read[image] = found


def project_run(document: Manifest) -> TrainingRun:
    """A run as reconciling needs it: a finished one keeps its identity, phase and expiry. Raises DocumentError."""
    status = document.get("status", {})
    rests = status.get("phase") in TERMINAL_PHASES and is_as_written(status)
    return _finished_run(document) if rests else parse_stored_run(document)


def _finished_run(document: Manifest) -> TrainingRun:
    """Thousands of them stay around: no reconcile reads more of one than this, they share the rest, and what the API
    server has checked is not checked again.
    """
    identity, status = document["metadata"], document["status"]
    metadata = ObjectMeta.model_construct(
        _SAID,
        name=identity["name"],
        namespace=intern(identity["namespace"]),
        uid=identity["uid"],
        resource_version=identity["resourceVersion"],
        generation=identity.get("generation", 0),
        creation_timestamp=identity.get("creationTimestamp"),
        deletion_timestamp=identity.get("deletionTimestamp"),
        labels=_EMPTY,
        annotations=_EMPTY,
        finalizers=(),
    )
    spec, end = _UNREAD_SPEC, _end(status["phase"], status.get("observedGeneration", -1))
    ttl = document["spec"].get("ttlSecondsAfterFinished")
    if ttl is not None:
        spec, end = _expiring(ttl), end.with_changes(completion_time=status.get("completionTime"))
    return TrainingRun.model_construct(_SAID, metadata=metadata, spec=spec, status=end)


@lru_cache
def _end(phase: Phase | None, observed_generation: int) -> RunStatus:
    """Thousands share the same few values: an edit of a finished run is acknowledged by its generation."""
    return RunStatus(phase=phase, observed_generation=observed_generation)


@lru_cache
def _expiring(ttl: int) -> RunSpec:
    return _UNREAD_SPEC.with_changes(ttl_seconds_after_finished=ttl)


_EMPTY: dict[str, str] = {}
_SAID: set[str] = set()
"""Which fields a document set: each model has its own set, which is as large as the model."""

_UNREAD_SPEC = RunSpec(environment="-")


def slim_pod(pod: PodObservation) -> PodObservation:
    """The pod of a finished run, released: its containers' messages are in the run's status."""
    node = intern(pod.node) if pod.node else None
    slimmer = replace(pod, containers=(), result=None, reason=None, message="", address=None)
    return replace(slimmer, namespace=intern(pod.namespace), run_name=intern(pod.run_name), node=node)


def run_of_child(document: KubernetesObject) -> Key | None:
    """The run that a child's label names."""
    name = document["metadata"].get("labels", {}).get(RUN_LABEL)
    return (intern(document["metadata"]["namespace"]), intern(name)) if name else None


@dataclass(frozen=True, slots=True)
class UnreadableRuntime:
    """An RLRuntime that exists and cannot be parsed, e.g. because a newer release wrote it."""

    metadata: ObjectMeta
    status: RuntimeStatus
    faults: tuple[Refusal, ...]
    kind: Literal["RLRuntime"] = RUNTIME_KIND


def project_runtime(document: Manifest) -> Runtime | UnreadableRuntime:
    """An unreadable runtime is held, too: its runs must not be told that it does not exist."""
    try:
        return parse_runtime(document)
    except DocumentError as error:
        metadata = ObjectMeta.model_validate(document["metadata"])
        return UnreadableRuntime(metadata, _status_of(document), error.refusals)


def _status_of(document: Manifest) -> RuntimeStatus:
    try:
        return RuntimeStatus.model_validate(document.get("status") or {})
    except ValidationError:
        return RuntimeStatus()


class ObservedNamespace(NamedTuple):
    labels: Mapping[str, str]
    deleting: bool


def _observed(document: KubernetesObject) -> ObservedNamespace:
    metadata = document["metadata"]
    return ObservedNamespace(metadata.get("labels", {}), "deletionTimestamp" in metadata)


def _nothing(_: KubernetesObject) -> None:
    return None


class Caches:
    def __init__(self, catalogs: Catalogs | None = None) -> None:
        self.catalogs = catalogs or Catalogs()
        self.immutable_config_maps = ImmutableConfigMaps()
        self.runs: ResourceCache[Manifest, TrainingRun] = ResourceCache(project_run, key_of)
        self.runtimes: ResourceCache[Manifest, Runtime | UnreadableRuntime] = ResourceCache(project_runtime, key_of)
        self.environments: ResourceCache[Manifest, Environment] = ResourceCache(parse_environment, key_of)
        self.namespaces: ResourceCache[KubernetesObject, ObservedNamespace] = ResourceCache(_observed, key_of)
        self.pods: ResourceCache[PodObject, PodObservation] = ResourceCache(self._project_pod, run_of_child)
        self.config_maps: ResourceCache[ConfigMapObject, None] = ResourceCache(_nothing, run_of_child)
        self.services: ResourceCache[ServiceObject, None] = ResourceCache(_nothing, run_of_child)
        self.network_policies: ResourceCache[NetworkPolicyObject, None] = ResourceCache(_nothing, run_of_child)
        self.live_pods: dict[Key, PodObservation] = {}
        """Pods that run or are still unread: few among thousands, and scanned every second."""

        self.unstarted = Unstarted()
        self.runtime_queues = RuntimeQueues(self.limits)
        self.runs.on_change(self._run_changed)
        self.pods.on_change(self._pod_changed)
        self.runtimes.on_change(self._runtime_changed)

    def _project_pod(self, document: PodObject) -> PodObservation:
        pod = observe_pod(document)
        run = self.runs.get((pod.namespace, pod.run_name))
        over = run is not None and run.status.finished and pod.over
        return slim_pod(pod) if over and not pod.held else pod

    def _pod_changed(self, key: Key, pod: PodObservation | None) -> None:
        if pod and (pod.held or not pod.over):
            self.live_pods[key] = pod
        else:
            self.live_pods.pop(key, None)
        self.runtime_queues.pod_changed(key, pod if pod and self._outlives_run(pod) else None)

    def _outlives_run(self, pod: PodObservation) -> bool:
        name, uid = pod.made_for
        run = self.runs.get((pod.namespace, name))
        may_run = not pod.over and SLOT_GATE not in pod.gates
        return may_run and (run is None or run.metadata.uid != uid or run.metadata.deletion_timestamp is not None)

    def _run_changed(self, key: Key, run: TrainingRun | None) -> None:
        self.unstarted.changed(key, run)
        for pod in self.pods.of_run(key):  # first: no slot is free in between
            own = (pod.namespace, pod.name)
            self.runtime_queues.pod_changed(own, pod if self._outlives_run(pod) else None)
        self.runtime_queues.changed(key, run)

    def _runtime_changed(self, key: Key, _: Runtime | UnreadableRuntime | None) -> None:
        """Its limits decide the order of those that wait."""
        for waiting in self.runtime_queues.waiting(key[1]):
            self.runtime_queues.changed(waiting, self.runs.get(waiting))

    def limits(self, runtime: str) -> Limits:
        """A runtime's limits; of one that is not there or cannot be read, none."""
        held = self.runtimes.get(("", runtime))
        return held.spec.limits if isinstance(held, Runtime) else Limits()

    @property
    def own_kinds(self) -> Mapping[str, ResourceCache[Any, Any]]:
        """The stores of our kinds, by plural."""
        return {RUN_PLURAL: self.runs, RUNTIME_PLURAL: self.runtimes, ENVIRONMENT_PLURAL: self.environments}

    @property
    def children(self) -> Mapping[str, ResourceCache[Any, Any]]:
        """The stores of what runs own, by kind."""
        return {
            "Pod": self.pods,
            "ConfigMap": self.config_maps,
            "Service": self.services,
            "NetworkPolicy": self.network_policies,
        }


async def list_own_kinds(
    client: ClusterClient, caches: Caches, namespace: str | None, changed: Callable[[str, Key], None]
) -> None:
    """Make the caches of our kinds complete, and forget what vanished while no watch was open.

    kopf's watch feeds them in between; it never reports objects that vanished during an outage. An operator for a
    single namespace may not watch namespaces: it reads that one's labels here.
    """
    for resource, scope in ((RUNTIMES, None), (ENVIRONMENTS, namespace), (RUNS, namespace)):
        store = caches.own_kinds[resource.plural]
        await list_into(store, client, resource.path(scope), partial(changed, resource.plural))
    if namespace:
        caches.namespaces.put(await client.get(NAMESPACES.path(name=namespace), accept=METADATA_ONLY))


async def list_catalogs(client: ClusterClient, catalogs: Catalogs, namespace: str) -> None:
    """Load what an earlier process read from images and left in ConfigMaps."""

    def take(document: ConfigMapObject) -> None:
        stored = stored_catalog(document)
        if stored is not None:
            catalogs.hold(stored.image, stored.found)

    await client.each(CONFIG_MAPS.path(namespace), {"labelSelector": CATALOG_SELECTOR}, take)
