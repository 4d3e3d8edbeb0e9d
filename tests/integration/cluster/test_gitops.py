"""What happens to a run when a GitOps tool applies its file again and again: docs/how-to/gitops.md, row by row."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES
from tests.integration.cluster.control_plane import ADMIN_TOKEN, DEFINITIONS, ControlPlane, installed_definitions
from tests.integration.cluster.gitops_tools import (
    ARGO_MANAGER,
    ArgoClientSide,
    ArgoServerSide,
    Flux,
    GitOpsTool,
    RefusedBySourceError,
    server_side_apply,
)
from tests.integration.cluster.kubectl import Kubectl
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.policies import PATHS, policy_documents
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.rlctl_calls import rlctl_in
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

from rl_operator.documents.parse import load_documents
from rl_operator.documents.shipped import bundled_runtime_text

nightly = pytest.mark.nightly("operator/src/rl_operator/api", "operator/src/rl_operator/reconcile", "examples")

EXAMPLES = Path("examples/gitops/team-a/runs")
MARK = "rl-operator.dev/started-as"
SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
CHECKPOINTED = result("stopped", steps=2, total=TOTAL_STEPS)
FROZEN = "spec.wandb: it is frozen since the run started: make a new run for other settings"

Manifest = dict[str, Any]


@pytest.fixture
def kubectl(control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    if not Kubectl.there():
        pytest.skip("needs kubectl on PATH or in KUBEBUILDER_ASSETS")
    return Kubectl(control_plane.kubeconfig(ADMIN_TOKEN), tmp_path / "cache")


@pytest.fixture(params=["Argo CD", pytest.param("Argo CD client-side", marks=nightly), "Flux"])
def tool(request: pytest.FixtureRequest, runs: RunsNamespace, tmp_path: Path) -> GitOpsTool:
    match request.param:
        case "Argo CD":
            return ArgoServerSide(runs.admin)
        case "Flux":
            return Flux(runs.admin)
        case _:
            return ArgoClientSide(request.getfixturevalue("kubectl"), tmp_path)


@pytest.fixture
def rlctl_messages(control_plane: ControlPlane, runs: RunsNamespace) -> Callable[..., str]:
    """Its messages for users."""

    def call(*arguments: str) -> str:
        done = rlctl_in(control_plane, runs.namespace)(*arguments)
        done.check_returncode()
        return done.stderr

    return call


def source(runs: RunsNamespace, name: str = "sorting", **spec: Any) -> Manifest:
    """The file in git."""
    settings = {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS}}
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name, "namespace": runs.namespace},
        "spec": {**settings, **spec},
    }


def come_to_rest(runs: RunsNamespace, pod: str) -> None:
    """The pod of a stopping run ends with a checkpoint."""
    runs.until_phase("Stopping")
    wait_for("its end is asked for", lambda: "deletionTimestamp" in (runs.kubelet.pod(pod) or {})["metadata"])
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, CHECKPOINTED))
    runs.until_phase("Stopped")


def identity(runs: RunsNamespace) -> tuple[Any, ...]:
    """What a new run or an edit would change."""
    run = runs.find()
    metadata = run["metadata"]
    pods = [pod["metadata"]["name"] for pod in runs.kubelet.pods()]
    return metadata["uid"], metadata["generation"], metadata["annotations"][MARK], run["spec"], pods


def suspended(runs: RunsNamespace) -> object:
    return (runs.find() or {})["spec"].get("suspend")


# --- what is applied again ----------------------------------------------------------------------------------------
def test_applying_again_changes_nothing(runs: RunsNamespace, tool: GitOpsTool) -> None:
    tool.apply(source(runs))
    pod = runs.until_training()
    before = identity(runs)
    tool.apply(source(runs))
    assert identity(runs) == before, "while it trains"
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    runs.until_phase("Succeeded")
    tool.apply(source(runs))
    stays("it is over, and nothing starts", lambda: identity(runs) == before, seconds=0.5)


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.stem)
def test_the_example_is_kept_as_written(runs: RunsNamespace, file: Path) -> None:
    [run] = load_documents(file.read_text(encoding="utf-8"))
    run["metadata"]["namespace"] = runs.namespace
    path = f"{RUNS.format(namespace=runs.namespace)}/{run['metadata']['name']}"
    assert differences(run, dry_run(runs, path, run)) == []


def platform() -> list[tuple[str, Manifest]]:
    """Path and manifest of the charts' objects that the API server might write differently."""
    runtimes = [load_documents(bundled_runtime_text(name))[0] for name in ("default", "tiny")]
    return [
        *((f"{DEFINITIONS}/{crd['metadata']['name']}", crd) for crd in installed_definitions()),
        *((f"{PATHS[policy['kind']]}/{policy['metadata']['name']}", policy) for policy in policy_documents()),
        *((f"{RUNTIMES}/{runtime['metadata']['name']}", runtime) for runtime in runtimes),
    ]


@pytest.mark.parametrize(("path", "manifest"), platform(), ids=[path.rpartition("/apis/")[2] for path, _ in platform()])
def test_the_platform_is_kept_as_written(runs: RunsNamespace, path: str, manifest: Manifest) -> None:
    """So that a comparison by the API server finds no difference, and ignoreDifferences is not needed."""
    assert differences(manifest, dry_run(runs, path, manifest)) == []


def dry_run(runs: RunsNamespace, path: str, manifest: Manifest) -> Manifest:
    query = "&dryRun=All&fieldValidation=Strict"
    return server_side_apply(runs.admin, path, manifest, ARGO_MANAGER, query)


def differences(wanted: Any, live: Any, path: str = "") -> list[str]:
    """Where a written value became another one. Defaulted fields do not count."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [line for key, value in wanted.items() for line in differences(value, live.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        pairs = enumerate(zip(wanted, live, strict=True))
        return [line for place, (one, other) in pairs for line in differences(one, other, f"{path}[{place}]")]
    return [] if wanted == live else [f"{path}: {wanted!r} became {live!r}"]


# --- spec.suspend --------------------------------------------------------------------------------------------------
def test_a_stop_by_rlctl_is_kept_where_the_source_sets_nothing(
    runs: RunsNamespace, tool: GitOpsTool, rlctl_messages: Callable[..., str]
) -> None:
    tool.apply(source(runs))
    pod = runs.until_training()
    assert "keeps this run as its source says" in rlctl_messages("stop", "sorting", "--timeout", "0")
    tool.apply(source(runs))
    come_to_rest(runs, pod)
    tool.apply(source(runs))
    stays("it rests", lambda: suspended(runs) and runs.status()["phase"] == "Stopped", seconds=0.5)
    rlctl_messages("resume", "sorting")
    tool.apply(source(runs))
    assert suspended(runs) is False
    runs.succeed(runs.until_pod(attempt=2), attempt=2)


def test_a_stop_by_hand_is_reverted_where_the_source_sets_false(runs: RunsNamespace, tool: GitOpsTool) -> None:
    tool.apply(source(runs, suspend=False))
    pod = runs.until_training()
    runs.edit(suspend=True)
    come_to_rest(runs, pod)
    tool.apply(source(runs, suspend=False))
    assert suspended(runs) is False
    assert runs.until_pod(attempt=2) != pod


def test_a_draft_in_the_source_is_started_there(
    runs: RunsNamespace, tool: GitOpsTool, rlctl_messages: Callable[..., str]
) -> None:
    """Started by hand, it is stopped by the next pass. Removing the line from the file starts it."""
    tool.apply(source(runs, suspend=True))
    runs.until_reason("Suspended", "Draft")
    assert "set spec.suspend: false there" in rlctl_messages("resume", "sorting")
    pod = runs.until_training()
    tool.apply(source(runs, suspend=True))
    come_to_rest(runs, pod)
    tool.apply(source(runs))
    runs.succeed(runs.until_pod(attempt=2), attempt=2)


def test_a_stop_by_hand_repeated_in_the_source_outlives_its_line(runs: RunsNamespace, tool: GitOpsTool) -> None:
    """Server-side, a field set by two managers is gone when both drop it. `suspend: false` is understood by all."""
    tool.apply(source(runs))
    pod = runs.until_training()
    runs.edit(suspend=True)
    come_to_rest(runs, pod)
    tool.apply(source(runs, suspend=True))
    tool.apply(source(runs))
    assert suspended(runs) is (None if isinstance(tool, ArgoClientSide) else True)
    tool.apply(source(runs, suspend=False))
    assert runs.until_pod(attempt=2) != pod


def test_flux_reverts_changes_by_kubectl(runs: RunsNamespace, kubectl: Kubectl) -> None:
    """Whatever the source sets. It leaves rlctl's writes alone, as Argo CD does with kubectl's."""
    flux, argo = Flux(runs.admin), ArgoServerSide(runs.admin)
    stop = ("patch", "rlrun", "sorting", "-n", runs.namespace, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    for tool, left in ((argo, True), (flux, None)):
        tool.apply(source(runs))
        assert kubectl(*stop).code == 0
        tool.apply(source(runs))
        assert suspended(runs) is left
        runs.delete()


# --- what is gone, and what is new -----------------------------------------------------------------------------------
def test_an_expired_run_is_created_again_and_trains_from_scratch(runs: RunsNamespace) -> None:
    tool = Flux(runs.admin)
    tool.apply(source(runs, ttlSecondsAfterFinished=1))
    first = runs.until_pod()
    runs.kubelet.start(first)
    runs.kubelet.end(first, "Succeeded", trainer=End(0, SUCCEEDED))
    wait_for("it has expired", lambda: runs.find() is None)
    tool.apply(source(runs, ttlSecondsAfterFinished=1))
    again = runs.until_pod()
    assert again != first
    assert begins_with(runs, again) is None


def begins_with(runs: RunsNamespace, pod: str) -> str | None:
    """The weights that a pod's trainer starts from."""
    containers = (runs.kubelet.pod(pod) or {})["spec"]["containers"]
    variables = next(container for container in containers if container["name"] == "trainer")["env"]
    return next((v["value"] for v in variables if v["name"] == "RL_START_FROM"), None)


def test_a_renamed_run_is_another_run(runs: RunsNamespace) -> None:
    """It starts from scratch, or from a checkpoint by its path: the old run is gone by the time it is looked up. Prune
    comes after apply.
    """
    tool = Flux(runs.admin)
    tool.apply(source(runs))
    runs.until_training()
    checkpoint = "tinker://m/weights/000002"
    tool.apply(source(runs, "renamed"))
    tool.apply(source(runs, "carried-over", startFrom={"checkpoint": checkpoint}))
    runs.delete()
    assert begins_with(runs, runs.until_pod(name="renamed")) is None
    assert begins_with(runs, runs.until_pod(name="carried-over")) == checkpoint


@pytest.mark.parametrize("policy", ["Foreground", "Background"], ids=["Argo CD", "Flux"])
def test_pruning_a_training_run(runs: RunsNamespace, policy: str) -> None:
    """The pod is released, saves its progress, and nothing is left but the checkpoint at the backend."""
    ArgoServerSide(runs.admin).apply(source(runs))
    pod = runs.until_training()
    path = f"{RUNS.format(namespace=runs.namespace)}/sorting"
    runs.admin.delete(path, {"propagationPolicy": policy})
    if policy == "Foreground":  # it waits for its children, which the garbage collector deletes
        assert (runs.find() or {})["metadata"]["finalizers"] == ["foregroundDeletion"]
        runs.admin.patch(path, {"metadata": {"finalizers": None}})
    wait_for("it is gone", lambda: runs.find() is None)
    runs.until_released(pod)
    runs.kubelet.collect_garbage()
    wait_for("nothing is left", runs.empty)


# --- edits -----------------------------------------------------------------------------------------------------------
def test_an_edit_of_a_frozen_field_is_refused_and_training_continues(runs: RunsNamespace, tool: GitOpsTool) -> None:
    tool.apply(source(runs, wandb={"project": "rl"}))
    pod = runs.until_training()
    before = identity(runs)
    with pytest.raises(RefusedBySourceError, match=FROZEN):
        tool.apply(source(runs, wandb={"project": "other"}))
    with pytest.raises(RefusedBySourceError, match=FROZEN):
        tool.apply(source(runs))
    assert identity(runs) == before
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    runs.until_phase("Succeeded")


def test_a_dry_run_in_the_pull_request_names_frozen_fields(
    runs: RunsNamespace, kubectl: Kubectl, tmp_path: Path
) -> None:
    """Forced, like the tool: otherwise kubectl complains about the field's owner instead."""
    Flux(runs.admin).apply(source(runs, wandb={"project": "rl"}))
    runs.until_training()
    (tmp_path / "run.json").write_text(json.dumps(source(runs, wandb={"project": "other"})), encoding="utf-8")
    answer = kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", str(tmp_path / "run.json")
    )
    assert answer.code == 1
    assert FROZEN in answer.complaints


def test_deadlines_may_be_edited_during_training(runs: RunsNamespace, tool: GitOpsTool) -> None:
    tool.apply(source(runs, activeDeadlineSeconds=3600))
    pod = runs.until_training()
    tool.apply(source(runs, activeDeadlineSeconds=7200))
    wait_for("the edit is seen", lambda: runs.status()["observedGeneration"] == 2)
    assert [each["metadata"]["name"] for each in runs.kubelet.pods()] == [pod]
