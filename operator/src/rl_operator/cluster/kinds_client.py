"""What the reconciles of RLEnvironments and RLRuntimes read from a cluster and write to it."""

from collections.abc import Callable
from typing import Literal

from rl_operator.api.environment import Environment, EnvironmentStatus
from rl_operator.api.kubernetes_objects import ConfigMapObject, KubernetesObject, Manifest
from rl_operator.api.runtime import Runtime, RuntimeStatus
from rl_operator.cluster.api_server.client import ApiPath, ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder, EventSubject
from rl_operator.cluster.api_server.resources import (
    CONFIG_MAPS,
    ENVIRONMENTS,
    PODS,
    RUNTIMES,
    all_of,
    create_ours,
    find,
    save_config_map,
)
from rl_operator.cluster.cache.caches import Caches, UnreadableRuntime
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.documents.merge_patch import merge_patch
from rl_operator.operator_errors import ConflictError, GoneError
from rl_operator.render.catalog_and_history import ImageCatalog
from rl_operator.render.discovery import CONTAINER, DISCOVERY_SELECTOR
from rl_operator.status.image_reading import MAX_OUTPUT_BYTES, ReadingPod, observe_reading_pod


class KindsClient:
    """Both kinds come from the caches; ConfigMaps and discovery pods are read live: few are needed, and rarely."""

    def __init__(
        self, client: ClusterClient, caches: Caches, recorder: EventRecorder, catalog_changed: Callable[[str], None]
    ) -> None:
        self._client = client
        self._caches = caches
        self._recorder = recorder
        self._catalog_changed = catalog_changed

    # --- reads --------------------------------------------------------------------------------------------------
    def environment(self, key: Key) -> Environment | None:
        return self._caches.environments.get(key)

    def runtime(self, name: str) -> Runtime | UnreadableRuntime | None:
        return self._caches.runtimes.get(("", name))

    def is_bundled(self, image: str) -> bool:
        return self._caches.catalogs.is_bundled(image)

    def catalog(self, image: str) -> ImageCatalog | None:
        return self._caches.catalogs.of(image)

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        return await find(self._client, CONFIG_MAPS, namespace, name)

    async def reading_pods(self, namespace: str) -> list[ReadingPod]:
        found = await all_of(self._client, PODS.path(namespace), {"labelSelector": DISCOVERY_SELECTOR})
        return [observe_reading_pod(document) for document in found]

    async def read_log(self, pod: ReadingPod) -> str:
        """What the pod printed, at most MAX_OUTPUT_BYTES of it."""
        path = PODS.path(pod.namespace, pod.name, "log")
        return await self._client.text(path, {"container": CONTAINER, "limitBytes": MAX_OUTPUT_BYTES})

    # --- writes -------------------------------------------------------------------------------------------------
    def hold_catalog(self, image: str, found: ImageCatalog) -> None:
        self._caches.catalogs.hold(image, found)
        self._catalog_changed(image)

    async def create_child(self, manifest: KubernetesObject) -> None:
        await create_ours(self._client, manifest, owner="object")

    async def delete_pod(self, pod: ReadingPod) -> None:
        try:
            await self._client.delete(PODS.path(pod.namespace, pod.name), pod.uid)
        except (GoneError, ConflictError):
            return

    async def save_config_map(self, manifest: ConfigMapObject, live: ConfigMapObject | None) -> None:
        """Raises NameTakenError if it belongs to someone else."""
        await save_config_map(self._client, manifest, live, owner="runtime")

    async def write_environment_status(self, environment: Environment, status: EnvironmentStatus) -> None:
        path = ENVIRONMENTS.path(*environment.key, "status")
        self._caches.environments.put_answer(await self._patch_status(path, environment, status))

    async def write_runtime_status(self, runtime: Runtime | UnreadableRuntime, status: RuntimeStatus) -> None:
        path = RUNTIMES.path(name=runtime.metadata.name, subresource="status")
        self._caches.runtimes.put_answer(await self._patch_status(path, runtime, status))

    async def _patch_status(
        self,
        path: ApiPath[Manifest],
        subject: Environment | Runtime | UnreadableRuntime,
        status: EnvironmentStatus | RuntimeStatus,
    ) -> Manifest:
        metadata = subject.metadata
        return await self._client.patch(
            path,
            {
                "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
                "status": merge_patch(subject.status.to_wire(), status.to_wire()),
            },
        )

    def record_event(
        self, subject: EventSubject, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        self._recorder.record(subject, kind, reason, message)
