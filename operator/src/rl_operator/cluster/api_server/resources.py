"""The paths of the resources that the operator reads and writes, and creation that is safe to repeat.

Creating an object with a deterministic name again gives the same result.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from rl_operator.api.kubernetes_objects import (
    ApiResources,
    ConfigMapObject,
    DeploymentObject,
    EventObject,
    JobObject,
    KubernetesObject,
    LeaseObject,
    Manifest,
    ManifestMetadata,
    NetworkPolicyObject,
    PodObject,
    ServiceObject,
)
from rl_operator.api.names import (
    API_VERSION,
    ENVIRONMENT_PLURAL,
    GROUP,
    OBJECT_NAME_PATTERN,
    RUN_PLURAL,
    RUNTIME_PLURAL,
)
from rl_operator.cluster.api_server.client import JSON, ApiPath, ClusterClient, Held, Params
from rl_operator.documents.merge_patch import merge_patch
from rl_operator.operator_errors import ConflictError, GoneError, NameTakenError, OperatorError
from rl_operator.render.frozen_texts import require_as_created
from rl_operator.render.labels import controller_uid


@dataclass(frozen=True, slots=True)
class Resource(Generic[Held]):
    """One resource of the API, and the type of its objects. `root` is `/api/v1` or `/apis/GROUP/VERSION`."""

    root: str
    plural: str

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> ApiPath[Held]:
        """The path of the collection, of one object or of its subresource; without a namespace: cluster-wide.

        Raises GoneError for an invalid object name: users write names, and a path must not lead elsewhere.
        """
        for given in (namespace or None, name):
            if given is not None and not re.fullmatch(OBJECT_NAME_PATTERN, given):
                raise GoneError(f"there are no {self.plural} in or at {given!r}: not a valid object name")
        scope = ["namespaces", namespace] if namespace else []
        return ApiPath("/".join([self.root, *scope, *(part for part in (self.plural, name, subresource) if part)]))


PODS: Final[Resource[PodObject]] = Resource("/api/v1", "pods")
CONFIG_MAPS: Final[Resource[ConfigMapObject]] = Resource("/api/v1", "configmaps")
SERVICES: Final[Resource[ServiceObject]] = Resource("/api/v1", "services")
NAMESPACES: Final[Resource[KubernetesObject]] = Resource("/api/v1", "namespaces")
SECRETS: Final[Resource[KubernetesObject]] = Resource("/api/v1", "secrets")
JOBS: Final[Resource[JobObject]] = Resource("/apis/batch/v1", "jobs")
DEPLOYMENTS: Final[Resource[DeploymentObject]] = Resource("/apis/apps/v1", "deployments")
NETWORK_POLICIES: Final[Resource[NetworkPolicyObject]] = Resource("/apis/networking.k8s.io/v1", "networkpolicies")
EVENTS: Final[Resource[EventObject]] = Resource("/apis/events.k8s.io/v1", "events")
LEASES: Final[Resource[LeaseObject]] = Resource("/apis/coordination.k8s.io/v1", "leases")
RUNS: Final[Resource[Manifest]] = Resource(f"/apis/{API_VERSION}", RUN_PLURAL)
RUNTIMES: Final[Resource[Manifest]] = Resource(f"/apis/{API_VERSION}", RUNTIME_PLURAL)
ENVIRONMENTS: Final[Resource[Manifest]] = Resource(f"/apis/{API_VERSION}", ENVIRONMENT_PLURAL)

CHILDREN: Final[Mapping[str, Resource[Any]]] = {
    "Pod": PODS,
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
    "NetworkPolicy": NETWORK_POLICIES,
}


async def all_of(client: ClusterClient, path: ApiPath[Held], params: Params) -> list[Held]:
    """A collection that is small."""
    found: list[Held] = []
    await client.each(path, params, found.append)
    return found


async def find(client: ClusterClient, resource: Resource[Held], namespace: str, name: str) -> Held | None:
    """None if there is no such object, or no object can have this name."""
    try:
        return await client.get(resource.path(namespace, name))
    except GoneError:
        return None


async def create_ours(client: ClusterClient, manifest: Held, owner: str = "run", accept: str = JSON) -> Held:
    """The current object: created (in the form that `accept` requests), or ours from an earlier try. `owner` describes
    its owner for a message.

    Raises NameTakenError if someone else's object, or one that is being deleted, has the name, TemplateChangedError if
    it is one of the run's that is frozen and holds something else.
    """
    resource: Resource[Held] = CHILDREN[manifest["kind"]]
    try:
        return await client.create(resource.path(manifest["metadata"]["namespace"]), manifest, accept)
    except ConflictError:
        return await _ours_already(client, resource, manifest, owner)


async def _ours_already(client: ClusterClient, resource: Resource[Held], manifest: Held, owner: str) -> Held:
    kind, metadata = manifest["kind"], manifest["metadata"]
    what = f"{kind} {metadata['namespace']}/{metadata['name']}"
    try:
        live = await client.get(resource.path(metadata["namespace"], metadata["name"]))
    except GoneError as error:
        raise ConflictError(f"{what} was in the way and is gone") from error
    if "deletionTimestamp" in live["metadata"]:
        raise NameTakenError(f"{what} is still being deleted: its name is free when that is done")
    if controller_uid(live) != controller_uid(manifest):
        raise NameTakenError(f"{what} exists and is not this {owner}'s: delete or rename it, or rename the {owner}")
    require_as_created(live, manifest)
    return await _labeled(client, resource, live, metadata["labels"]) if kind == "Pod" else live


async def _labeled(client: ClusterClient, resource: Resource[Held], live: Held, labels: Mapping[str, str]) -> Held:
    """Restore labels that were removed from a pod: without them no watch follows it."""
    metadata = live["metadata"]
    if labels.items() <= metadata.get("labels", {}).items():
        return live
    body = {"metadata": {"uid": metadata["uid"], "labels": labels}}
    return await client.patch(resource.path(metadata["namespace"], metadata["name"]), body)


async def save_config_map(
    client: ClusterClient, manifest: ConfigMapObject, live: ConfigMapObject | None, owner: str = "run"
) -> ConfigMapObject:
    """Make the ConfigMap hold the manifest's data: created, or changed where it differs from `live`.

    Raises NameTakenError if it belongs to someone else.
    """
    if live is None:
        live = await create_ours(client, manifest, owner)
    metadata, before = live["metadata"], live.get("data", {})
    if controller_uid(live) != controller_uid(manifest):
        what = f"ConfigMap {metadata['namespace']}/{metadata['name']}"
        raise NameTakenError(f"{what} exists and is not this {owner}'s: delete or rename it, or rename the {owner}")
    if before == manifest["data"]:
        return live
    body = {"metadata": version_in(metadata), "data": merge_patch(before, manifest["data"])}
    return await client.patch(CONFIG_MAPS.path(metadata["namespace"], metadata["name"]), body)


def version_in(metadata: ManifestMetadata) -> ManifestMetadata:
    """The API server takes a patch with it only while this version of the object is the live one."""
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


class KindsMissingError(OperatorError):
    """The CRDs are not installed: the user must act."""


async def require_kinds(client: ClusterClient) -> None:
    """Whether our kinds are installed is looked up through discovery, which everyone may read.

    Raises KindsMissingError, ForbiddenError or TargetUnreachableError.
    """
    try:
        discovered = await client.get(ApiPath[ApiResources](f"/apis/{API_VERSION}"))
    except GoneError:
        discovered = {}
    served = {resource["name"] for resource in discovered.get("resources", ())}
    kinds = (resource.plural for resource in (RUNS, RUNTIMES, ENVIRONMENTS))
    missing = [name for kind in kinds for name in (kind, f"{kind}/status") if name not in served]
    if missing:
        raise KindsMissingError(
            f"the API server {client.server} does not serve {', '.join(missing)} of {GROUP}: "
            "install the CRDs first (kubectl apply --server-side -f crds/)"
        )
