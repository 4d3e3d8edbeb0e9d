"""Creating an object of a deterministic name: again and again, with the same result."""

from collections.abc import Mapping
from typing import Any

from rl_operator.cluster.client import JSON, ClusterClient
from rl_operator.cluster.resources import CHILDREN
from rl_operator.errors import ConflictError, GoneError, NameTakenError


async def create_ours(
    client: ClusterClient, manifest: Mapping[str, Any], owner: str = "run", accept: str = JSON
) -> dict[str, Any]:
    """The object as it is now: created (as `accept` asks for it), or ours from an earlier try. `owner` is whose it is,
    in a person's word.

    Raises NameTakenError when somebody else's object, or one on its way out, has the name.
    """
    resource, metadata = CHILDREN[manifest["kind"]], manifest["metadata"]
    try:
        return await client.create(resource.path(metadata["namespace"]), manifest, accept)
    except ConflictError:
        return await _ours_already(client, manifest, owner)


async def _ours_already(client: ClusterClient, manifest: Mapping[str, Any], owner: str) -> dict[str, Any]:
    kind, metadata = manifest["kind"], manifest["metadata"]
    what = f"{kind} {metadata['namespace']}/{metadata['name']}"
    try:
        live = await client.get(CHILDREN[kind].path(metadata["namespace"], metadata["name"]))
    except GoneError as error:
        raise ConflictError(f"{what} was in the way and is gone") from error
    if "deletionTimestamp" in live["metadata"]:
        raise NameTakenError(f"{what} is still being deleted: its name is free when that is done")
    if controller_uid(live) != controller_uid(manifest):
        raise NameTakenError(f"{what} exists and is not this {owner}'s: delete or rename it, or rename the {owner}")
    return await _labeled(client, live, metadata["labels"]) if kind == "Pod" else live


async def _labeled(client: ClusterClient, live: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Put back labels that somebody took off a pod: without them no watch tells how it goes on."""
    metadata = live["metadata"]
    if labels.items() <= metadata.get("labels", {}).items():
        return live
    body = {"metadata": {"uid": metadata["uid"], "labels": labels}}
    return await client.patch(CHILDREN["Pod"].path(metadata["namespace"], metadata["name"]), body)


def controller_uid(document: Mapping[str, Any]) -> str | None:
    """The uid of the object that owns this one."""
    owners = document["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
