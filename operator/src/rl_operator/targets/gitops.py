"""Other writers of a run's spec: GitOps tools leave their names in labels and annotations. Pure.

`app.kubernetes.io/instance` is not proof: Helm and users set it, too, and Argo CD only if configured to.
"""

from collections.abc import Mapping
from typing import Any, Final

_FLUX: Final = (
    ("Flux Kustomization", "kustomize.toolkit.fluxcd.io"),
    ("Flux HelmRelease", "helm.toolkit.fluxcd.io"),
)
_ARGO_TRACKING: Final = "argocd.argoproj.io/tracking-id"
"""APPLICATION:GROUP/KIND:NAMESPACE/NAME of the tracked object. A copy of an object carries the original's."""

_ARGO_INSTANCE: Final = "argocd.argoproj.io/instance"


def gitops_owner(run: Mapping[str, Any]) -> str | None:
    """Which tool keeps this run in sync with a source, as a phrase; None: none that is recognizable."""
    metadata = run["metadata"]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    application, _, tracked = annotations.get(_ARGO_TRACKING, "").partition(":")
    if tracked.endswith(f":{metadata['namespace']}/{metadata['name']}"):
        return f"Argo CD application {application!r}"
    if instance := labels.get(_ARGO_INSTANCE) or annotations.get(_ARGO_INSTANCE):
        return f"Argo CD application {instance!r}"
    for tool, prefix in _FLUX:
        if name := labels.get(f"{prefix}/name"):
            return f"{tool} '{labels.get(f'{prefix}/namespace', metadata['namespace'])}/{name}'"
    return None


def suspend_warning(run: Mapping[str, object], *, suspend: bool) -> str | None:
    """What happens to a change of `spec.suspend` that a GitOps tool does not know about."""
    owner = gitops_owner(run)
    if owner is None:
        return None
    wanted = "true" if suspend else "false"
    return (
        f"warning: {owner} keeps this run as its source says: if the source sets spec.suspend, it reverts this within "
        f"minutes. Then set spec.suspend: {wanted} there, or leave the field out of the source"
    )
