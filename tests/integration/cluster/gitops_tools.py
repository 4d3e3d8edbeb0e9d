"""How GitOps tools write what their source contains: the calls of Argo CD and of Flux, under their field managers.

Their controllers are not here. What they send is: gitops-engine applies as kubectl does, client-side or (with
ServerSideApply=true) server-side; Flux applies server-side, after it has taken over what kubectl owns. Both force.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.integration.cluster.admin import RUNS, AdminClient, ApiError
from tests.integration.cluster.kubectl import Kubectl

Manifest = dict[str, Any]

ARGO_MANAGER, FLUX_MANAGER = "argocd-controller", "kustomize-controller"
APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
ARGO_TRACKING = "argocd.argoproj.io/tracking-id"
FLUX_OWNER = {"kustomize.toolkit.fluxcd.io/name": "team-a-runs", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}


class RefusedBySourceError(Exception):
    """The API server's words, which the tool shows."""


class GitOpsTool(Protocol):
    def apply(self, run: Manifest) -> None:
        """One pass: make the run match its source. Raises RefusedBySourceError."""


def run_path(run: Manifest) -> str:
    return f"{RUNS.format(namespace=run['metadata']['namespace'])}/{run['metadata']['name']}"


def server_side_apply(admin: AdminClient, path: str, manifest: Manifest, manager: str, query: str = "") -> Manifest:
    try:
        answer: Manifest = admin.patch(f"{path}?fieldManager={manager}&force=true{query}", manifest, APPLY_PATCH)
    except ApiError as error:
        raise RefusedBySourceError(error.message) from error
    return answer


class ArgoServerSide:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def apply(self, run: Manifest) -> None:
        server_side_apply(self._admin, run_path(run), tracked_by_argo(run), ARGO_MANAGER)


class ArgoClientSide:
    """`kubectl apply`, with the last applied manifest in an annotation."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl = kubectl
        self._file = folder / "run.json"

    def apply(self, run: Manifest) -> None:
        self._file.write_text(json.dumps(tracked_by_argo(run)), encoding="utf-8")
        answer = self._kubectl("apply", f"--field-manager={ARGO_MANAGER}", "-f", str(self._file))
        if answer.code:
            raise RefusedBySourceError(answer.complaints)


class Flux:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def apply(self, run: Manifest) -> None:
        if live := self._admin.find(run_path(run)):
            entries = list(_taken_over(live["metadata"]["managedFields"]))
            patch = [{"op": "replace", "path": "/metadata/managedFields", "value": entries}]
            if entries != live["metadata"]["managedFields"]:
                self._admin.patch(run_path(run), patch, JSON_PATCH)
        labeled = {**run, "metadata": {**run["metadata"], "labels": FLUX_OWNER}}
        server_side_apply(self._admin, run_path(run), labeled, FLUX_MANAGER)


def tracked_by_argo(run: Manifest) -> Manifest:
    metadata = run["metadata"]
    tracked = f"runs:rl-operator.dev/RLTrainingRun:{metadata['namespace']}/{metadata['name']}"
    return {**run, "metadata": {**metadata, "annotations": {ARGO_TRACKING: tracked}}}


def _taken_over(entries: list[Manifest]) -> Iterator[Manifest]:
    """What kubectl owns becomes Flux's (fluxcd/pkg/ssa, PatchReplaceFieldsManagers): a manager of any name that begins
    with `kubectl`, but not of a subresource. Of an object that Flux has applied before.
    """
    kubectls = [entry for entry in entries if entry["manager"].startswith("kubectl") and "subresource" not in entry]
    for entry in entries:
        if entry["manager"] == FLUX_MANAGER and entry["operation"] == "Apply":
            fields = entry["fieldsV1"]
            for taken in kubectls:
                fields = _merged(fields, taken["fieldsV1"])
            yield {**entry, "fieldsV1": fields}
        elif entry not in kubectls:
            yield entry


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    return {**one, **{key: _merged(one.get(key, {}), value) for key, value in other.items()}}
