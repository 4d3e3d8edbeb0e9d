"""What a run was frozen as: the texts of its ConfigMap, believed only if its status has their hash.

Whoever may write ConfigMaps in a namespace may write one with a run's name and owner, before the run starts or in the
place of its own. The status is the operator's alone: whatever is made of the texts goes through `frozen_texts`.
"""

from collections.abc import Mapping
from typing import Final, cast

from rl_contract.content_hash import sha256_of_texts
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import NameTakenError, TemplateChangedError
from rl_operator.render.labels import controller_uid

POD_KEY: Final = "pod.json"
ENVIRONMENTS_KEY: Final = "environments.json"
SANDBOXES_KEY: Final = "sandboxes.json"

MAX_TOLD: Final = 4
"""Differences: the keys of a forged one are its author's."""

WRITTEN_AGAIN: Final = "delete it, and it is written again as it was"
REPAIR: Final = f"Nothing is made from it: {WRITTEN_AGAIN}."


def frozen_texts(config_map: k8s.ConfigMapObject, run: TrainingRun, of_files: str = "") -> Mapping[str, str]:
    """The texts that the run was started with; or the copied files of an own environment, with the hash `of_files` that
    is in the run's verified templates.

    Raises NameTakenError if the ConfigMap is not the run's, TemplateChangedError if it holds anything else.
    """
    metadata, texts = config_map["metadata"], config_map.get("data") or {}
    name = f"ConfigMap {run.metadata.namespace}/{metadata['name']}"
    if controller_uid(config_map) != run.metadata.uid:
        raise NameTakenError(f"{name} exists and is not this run's: delete or rename it")
    sha256, found = of_files or run.status.config_hash or "none", sha256_of_texts(texts)
    if found != sha256:
        told_by = "its template" if of_files else "status.configHash"
        how = f"its SHA-256 is {found[:12]}..., not {sha256[:12]}... as in {told_by}"
    else:
        how = differences(config_map, texts)
    if how:
        raise TemplateChangedError(f"{name} is not what the run was started with: {how}")
    return texts


def differences(config_map: k8s.ConfigMapObject, texts: Mapping[str, str]) -> str:
    """How the ConfigMap differs from one of ours with these texts: a phrase; empty if it does not."""
    held = config_map.get("data") or {}
    found = [f"{key} differs" for key in sorted(texts.keys() & held.keys()) if texts[key] != held[key]]
    found += [f"{key} is missing" for key in sorted(texts.keys() - held.keys())]
    found += [f"{key!r} is added" for key in sorted(held.keys() - texts.keys())]
    found += [f"{key!r} is added as binary data" for key in sorted(config_map.get("binaryData") or {})]
    found += [] if config_map.get("immutable") else ["it is not immutable"]
    return ", ".join(found[:MAX_TOLD]) + (f" and {len(found) - MAX_TOLD} more" if len(found) > MAX_TOLD else "")


def require_as_created(live: k8s.KubernetesObject, manifest: k8s.KubernetesObject) -> None:
    """A ConfigMap that is frozen once it is created may have been created by someone else before.

    Raises TemplateChangedError.
    """
    held, wanted = cast("k8s.ConfigMapObject", live), cast("k8s.ConfigMapObject", manifest)
    if wanted.get("immutable") and (other := differences(held, wanted["data"])):
        name = f"ConfigMap {wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
        raise TemplateChangedError(f"{name} is not what the run was started with: {other}. {REPAIR}")
