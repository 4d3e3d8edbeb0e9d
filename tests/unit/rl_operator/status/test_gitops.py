"""What Flux and Argo CD make of a run: one table, over what the code derives and over what was recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.integration.cluster.control_plane import find_program
from tests.unit.rl_operator.status.gitops import HEALTH_SCRIPT, argo, argo_application, argo_pod, flux
from tests.unit.rl_operator.status.test_phase_and_action import ROWS

from generate.crds import custom_resource_definitions
from generate.transitions import situation_of
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.derived_status import derive
from rl_operator.status.kind_status import CONDITIONS, Readiness
from rl_operator.status.phase_and_action import assess
from rl_operator.status.text.phase_table import TABLE, Situation

needs_kstatus = pytest.mark.skipif(not find_program("kstatus"), reason="needs kstatus beside kube-apiserver")

VERDICTS: Final[Mapping[Situation, tuple[str, str]]] = {
    Situation.WAITING: ("Progressing", "InProgress"),
    Situation.REFUSED: ("Degraded", "Failed"),
    Situation.DRAFT: ("Suspended", "Current"),
    Situation.STARTING: ("Progressing", "InProgress"),
    Situation.RUNNING: ("Healthy", "Current"),
    Situation.STOPPING: ("Progressing", "InProgress"),
    Situation.ENDING: ("Progressing", "InProgress"),
    Situation.STOPPED: ("Suspended", "Current"),
    Situation.SUCCEEDED: ("Healthy", "Current"),
    Situation.FAILED: ("Degraded", "Failed"),
}
"""Argo CD's health and Flux's status of a run."""

STANDINGS: Final[Mapping[Readiness, tuple[str, str]]] = {
    Readiness.READY: ("Healthy", "Current"),
    Readiness.RECONCILING: ("Progressing", "InProgress"),
    Readiness.FAILING: ("Progressing", "InProgress"),
    Readiness.STALLED: ("Degraded", "Failed"),
}
"""The same of a runtime and of an environment."""

RECORDED: Final = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path("tests/data/statuses").glob("*"))
}
"""What a real API server held (tests/integration/cluster/test_recorded_statuses.py writes it)."""


def derived(name: str) -> dict[str, Any]:
    """The run after that row's reconcile."""
    view = ROWS[name][0]
    return view.run.with_changes(status=derive(view, assess(view))).to_wire()


@pytest.mark.parametrize("name", ROWS)
def test_argo_on_derived_statuses(name: str) -> None:
    run = derived(name)
    assert argo(run) == (VERDICTS[ROWS[name][1]][0], run["status"]["message"])


@pytest.mark.process
@needs_kstatus
@pytest.mark.parametrize("name", ROWS)
def test_flux_on_derived_statuses(name: str) -> None:
    assert flux(derived(name)) == VERDICTS[ROWS[name][1]][1]


def test_every_situation_was_recorded() -> None:
    seen = {situation_of(status_of(run)) for run in RECORDED.values() if "conditions" in run.get("status", {})}
    assert seen == set(TABLE)


def status_of(run: dict[str, Any]) -> RunStatus:
    return TrainingRun.model_validate(run).status


@pytest.mark.parametrize("name", RECORDED)
def test_argo_on_recorded_statuses(name: str) -> None:
    run = RECORDED[name]
    assert argo(run)[0] == ("Progressing" if coming_or_going(run) else VERDICTS[situation_of(status_of(run))][0])
    assert argo(run)[1]


@pytest.mark.process
@needs_kstatus
@pytest.mark.parametrize("name", RECORDED)
def test_flux_on_recorded_statuses(name: str) -> None:
    run = RECORDED[name]
    if "deletionTimestamp" in run["metadata"]:
        expected = "Terminating"
    else:
        expected = "InProgress" if coming_or_going(run) else VERDICTS[situation_of(status_of(run))][1]
    assert flux(run) == expected


def coming_or_going(run: dict[str, Any]) -> bool:
    """Not reconciled yet, or being deleted."""
    return "deletionTimestamp" in run["metadata"] or "conditions" not in run["status"]


@pytest.mark.parametrize("kind", ["RLRuntime", "RLEnvironment"])
@pytest.mark.parametrize("readiness", Readiness, ids=lambda readiness: readiness.name)
def test_the_other_kinds(kind: str, readiness: Readiness) -> None:
    conditions = [
        {"type": type_, "status": status, "reason": "Reason", "message": "Why."}
        for type_, status in CONDITIONS[readiness].items()
    ]
    manifest = {
        "kind": kind,
        "metadata": {"generation": 3},
        "status": {"observedGeneration": 3, "conditions": conditions},
    }
    assert argo(manifest) == (STANDINGS[readiness][0], "Why.")


def test_a_change_that_was_not_reconciled_is_progress() -> None:
    run = derived("all ready")
    run["metadata"]["generation"] += 1
    assert argo(run)[0] == "Progressing"


@pytest.mark.parametrize("name", ["success", "backoffLimit reached"])
def test_a_finished_run_stays_the_same_whatever_is_edited(name: str) -> None:
    run = derived(name)
    before = argo(run)
    run["metadata"]["generation"] += 1
    assert argo(run) == before


def test_the_script_lists_its_kinds() -> None:
    text = HEALTH_SCRIPT.read_text()
    assert all(crd["spec"]["names"]["plural"] in text.lower() for crd in custom_resource_definitions().values())


@pytest.mark.parametrize("golden", ["tiny.pod", "own.environment-pod"])
def test_our_pods_do_not_hold_up_an_application(golden: str) -> None:
    """Argo CD takes a pod that never restarts for a hook: progressing while it runs. It only checks a run's pods if
    they are part of the application; even then they must not keep a training run from being healthy.
    """
    pod = yaml.safe_load(Path(f"tests/data/golden/render/{golden}.yaml").read_text()) | {"status": {"phase": "Running"}}
    run = derived("all ready")
    resources = {"run": (run, argo(run)[0]), "pod": (pod, argo_pod(pod))}
    assert argo_application(resources) == "Healthy"
    pod["metadata"]["annotations"].pop("argocd.argoproj.io/ignore-healthcheck")
    assert argo_application(resources) == "Progressing"


def test_every_row_of_the_table_has_a_verdict() -> None:
    assert set(VERDICTS) == set(TABLE)
