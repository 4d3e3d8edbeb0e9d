from typing import Any

import pytest

from rl_operator.targets.gitops import gitops_owner, suspend_warning

TRACKED = "argocd.argoproj.io/tracking-id"
FLUX = "kustomize.toolkit.fluxcd.io"


def run(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "sorting", "namespace": "team-a", "labels": labels or {}, "annotations": annotations or {},
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "annotations", "owner"),
    [
        ({}, {}, None),
        ({"app.kubernetes.io/instance": "runs"}, {}, None),
        ({"argocd.argoproj.io/instance": "runs"}, {}, "Argo CD application 'runs'"),
        (
            {},
            {TRACKED: "runs:rl-operator.dev/RLTrainingRun:team-a/sorting"},
            "Argo CD application 'runs'",
        ),
        ({}, {TRACKED: "runs:rl-operator.dev/RLTrainingRun:team-a/original"}, None),
        ({f"{FLUX}/name": "runs", f"{FLUX}/namespace": "flux-system"}, {}, "Flux Kustomization 'flux-system/runs'"),
        ({"helm.toolkit.fluxcd.io/name": "runs"}, {}, "Flux HelmRelease 'team-a/runs'"),
    ],
    ids=["nobody", "no proof", "argo label", "argo tracking", "a copy of what is tracked", "kustomization", "helm"],
)
def test_the_owner_of_a_run_in_git(labels: dict[str, str], annotations: dict[str, str], owner: str | None) -> None:
    assert gitops_owner(run(labels, annotations)) == owner


def test_the_warning_names_the_owner_and_what_to_do_instead() -> None:
    managed = run({"argocd.argoproj.io/instance": "runs"})
    warning = suspend_warning(managed, suspend=True)
    assert warning is not None
    assert "Argo CD application 'runs'" in warning
    assert "set spec.suspend: true there, or leave the field out of the source" in warning
    assert "set spec.suspend: false there" in (suspend_warning(managed, suspend=False) or "")


def test_a_run_without_an_owner_needs_no_warning() -> None:
    assert suspend_warning(run(), suspend=True) is None
    assert gitops_owner({"metadata": {"name": "sorting", "namespace": "team-a"}}) is None
