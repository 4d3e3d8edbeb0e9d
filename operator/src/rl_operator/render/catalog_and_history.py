"""ConfigMaps that are read, too: a runtime's catalog, and a run's history.

The catalog lists what a runtime's image contains: for users and agents, and for a restarted operator. The history
outlives a run's pods.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.catalog import Catalog, CatalogEnvironment, EnvironmentFamily, EnvironmentField
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.api.settings.fields import flattened
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import InvalidError
from rl_operator.render.labels import child_metadata, config_map_of, managed_labels, owned_by

CATALOG_COMPONENT: Final = "catalog"
CATALOG_SELECTOR: Final = f"{names.MANAGED_BY_LABEL}={names.MANAGER},{names.COMPONENT_LABEL}={CATALOG_COMPONENT}"
MAX_BYTES: Final = 900_000
"""A ConfigMap is limited to 1 MiB in total."""

CATALOG_KEY: Final = "catalog.json"
_IMAGE_KEY: Final = "image"
_IMAGE_ID_KEY: Final = "imageID"
_REDISCOVER_KEY: Final = "rediscover"


@dataclass(frozen=True, slots=True)
class ImageCatalog:
    """What was read from an image. `image_id`: its digest, as the kubelet reported it."""

    catalog: Catalog
    image_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """The content of a catalog's ConfigMap. `rediscover`: the annotation's value that it answers."""

    image: str
    rediscover: str
    found: ImageCatalog


def catalog_name(runtime: str) -> str:
    return f"rl-catalog-{runtime}"


def catalog_config_map(runtime: Runtime, namespace: str, found: ImageCatalog) -> k8s.ConfigMapObject:
    """Raises InvalidError if it would not fit into a ConfigMap."""
    owner, labels = runtime.metadata, managed_labels("rl-catalog", CATALOG_COMPONENT)
    metadata: k8s.ManifestMetadata = {
        "name": catalog_name(owner.name),
        "namespace": namespace,
        "labels": {**labels, "app.kubernetes.io/instance": owner.name},
        "ownerReferences": [{**owned_by(names.RUNTIME_KIND, owner), "controller": True}],
    }
    data = {
        CATALOG_KEY: _catalog_text(runtime, found.catalog),
        _IMAGE_KEY: runtime.spec.image_of_environments,
        _IMAGE_ID_KEY: found.image_id or "",
        _REDISCOVER_KEY: owner.annotations.get(names.REDISCOVER_ANNOTATION, ""),
    }
    return config_map_of(metadata, data)


def stored_catalog(config_map: k8s.ConfigMapObject) -> StoredCatalog | None:
    """Read a catalog's ConfigMap; None if it is not one of ours or is damaged: then the image is read again."""
    data = config_map.get("data", {})
    try:
        catalog = Catalog.model_validate_json(data.get(CATALOG_KEY, ""))
    except ValidationError:
        return None
    found = ImageCatalog(catalog, data.get(_IMAGE_ID_KEY) or None)
    return StoredCatalog(data.get(_IMAGE_KEY, ""), data.get(_REDISCOVER_KEY, ""), found)


def _catalog_text(runtime: Runtime, catalog: Catalog) -> str:
    """The catalog as `tinker-atropos environments -o json` prints it, with each field's lock and bounds.

    Field descriptions are left out if they do not fit.
    """
    image = runtime.spec.image_of_environments
    for described in (True, False):
        environments = [_described(environment, runtime, described) for environment in catalog.environments]
        families = [_described(family, runtime, described) for family in catalog.families]
        content = {"environments": environments, "families": families, "warnings": list(catalog.warnings)}
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        size = len(text.encode())
        if size <= MAX_BYTES:
            return text
    raise InvalidError(
        f"the fields of the {len(catalog.environments)} environments in image {image} take "
        f"{size / 1000:.0f} kB and a ConfigMap has room for {MAX_BYTES / 1000:.0f} kB: split the image"
    )


def _described(each: CatalogEnvironment | EnvironmentFamily, runtime: Runtime, described: bool) -> dict[str, object]:
    head = each.model_dump(mode="json", by_alias=False, exclude={"fields"}, exclude_none=True)
    locked = flattened(runtime.spec.locked.env, {field.name for field in each.fields})
    return {**head, "fields": [_field(field, locked, runtime.spec.bounds.env, described) for field in each.fields]}


def _field(
    field: EnvironmentField, locked: Mapping[str, object], bounds: Mapping[str, Bound], described: bool
) -> dict[str, object]:
    """Limits that the source does not state are left out; so is a default that only running the code would show."""
    wire = field.model_dump(mode="json", by_alias=False, exclude_unset=True)
    if not described:
        wire.pop("description", None)
    if field.name in locked:
        wire["locked"] = locked[field.name]
    if field.name in bounds:
        wire["bounds"] = bounds[field.name].to_wire()
    return wire


HISTORY_KEY: Final = "history.json"
HISTORY_COMPONENT: Final = "history"


def history_config_map(run: TrainingRun, name: str, points: Sequence[Mapping[str, float]]) -> k8s.ConfigMapObject:
    """Not immutable: a further attempt continues it."""
    return config_map_of(child_metadata(run, name, HISTORY_COMPONENT), history_content(points))


def history_content(points: Sequence[Mapping[str, float]]) -> dict[str, str]:
    return {HISTORY_KEY: json.dumps({"points": list(points)}, separators=(",", ":"))}


def stored_history(config_map: k8s.ConfigMapObject) -> object:
    """The document of such a ConfigMap; None if it has no readable one."""
    try:
        document: object = json.loads((config_map.get("data") or {})[HISTORY_KEY])
    except (KeyError, TypeError, ValueError):
        return None
    return document
