"""What can be done with a run in each phase, and what it does."""

from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.operator_errors import RefusedError
from rl_operator.targets.runs.run_control import (
    AskedBudget,
    gitops_owner,
    offer_of,
    resume_run,
    stop_run,
    suspend_warning,
)

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


ARGO = {"argocd.argoproj.io/instance": "lab"}


def run_of(*, suspend: bool = False, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    run = run_manifest(spec={"suspend": suspend}, **status)
    run["metadata"]["labels"] = labels or {}
    return run


@pytest.mark.parametrize(
    ("run", "action"),
    [
        (run_of(phase="Running"), "stop"),
        (run_of(phase="Pending"), "stop"),
        (run_of(phase="Stopped", suspend=True), "resume"),
        (run_of(phase="Stopping", suspend=True), "resume"),
        (run_of(phase="Succeeded"), None),
        (run_of(phase="Failed", suspend=True), None),
    ],
)
def test_what_is_offered(run: dict[str, Any], action: str | None) -> None:
    offer = offer_of(run)
    assert (offer.action if offer else None) == action


def test_an_offer_says_what_gitops_would_do() -> None:
    offer = offer_of(run_of(phase="Running", labels=ARGO))
    assert offer is not None
    assert "Argo CD application 'lab'" in offer.warning


def test_stop_and_resume() -> None:
    target, installed = MemoryTarget(run_of(phase="Running", startTime="2026-01-01T00:00:00Z")), list[str]()

    def resume() -> str:
        return resume_run(
            target, "default", "sorting", lambda run: installed.append(run["metadata"]["name"]), target.note
        )

    assert (resume(), installed) == ("", []), "it is not suspended"
    stop_run(target, "default", "sorting", target.note)
    assert target.objects["default", "sorting"]["spec"]["suspend"] is True
    assert (resume(), installed) == ("continues from its last checkpoint", ["sorting"])
    assert target.objects["default", "sorting"]["spec"]["suspend"] is False
    assert target.notes == []


def test_a_draft_starts() -> None:
    target = MemoryTarget(run_of(suspend=True, labels=ARGO))
    assert resume_run(target, "default", "sorting", lambda _: None, target.note) == "starts"
    assert ["Argo CD" in note for note in target.notes] == [True]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_is_over_is_refused(phase: str) -> None:
    target = MemoryTarget(run_of(phase=phase))
    with pytest.raises(RefusedError, match="nothing to stop"):
        stop_run(target, "default", "sorting", target.note)
    with pytest.raises(RefusedError, match=r"startFrom: \{run: sorting\}"):
        resume_run(target, "default", "sorting", lambda _: None, target.note)


def at_its_budget(**cost: Any) -> dict[str, Any]:
    suspended = {"type": "Suspended", "status": "True", "reason": "BudgetReached", "lastTransitionTime": "t"}
    run = run_of(
        phase="Stopped", startTime="2026-01-01T00:00:00Z", message="BudgetReached: 9 of 10 USD.", conditions=[suspended]
    )
    run["status"]["cost"] = {"amount": 9.0, "currency": "USD", "budget": 10.0, **cost}
    run["spec"]["budget"] = {"amount": 10.0, "currency": "USD"}
    return run


def resumed(run: dict[str, Any], budget: float | str | None) -> tuple[str, dict[str, Any]]:
    target = MemoryTarget(run)
    does = resume_run(
        target,
        "default",
        "sorting",
        lambda _: None,
        target.note,
        budget=None if budget is None else AskedBudget.of_text(str(budget)),
    )
    return does, target.objects["default", "sorting"]["spec"]


def test_a_run_at_its_budget_continues_with_a_higher_one() -> None:
    assert offer_of(at_its_budget()) is None
    does, spec = resumed(at_its_budget(), 15.0)
    assert (does, spec["budget"]) == ("continues from its last checkpoint", {"amount": 15.0, "currency": "USD"})


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (None, "has spent its budget: BudgetReached"),
        (10.0, "10 is not more than that"),
        (8.5, "has cost 9 USD already"),
        ("20 EUR", "has its prices in USD: give the budget in that currency, not in EUR"),
    ],
)
def test_a_budget_that_is_not_higher_continues_nothing(budget: float | str | None, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        resumed(at_its_budget(), budget)


@pytest.mark.parametrize(
    ("text", "asked"),
    [("20", (20.0, None)), ("0.5", (0.5, None)), ("20 USD", (20.0, "USD")), ("1.25EUR", (1.25, "EUR"))],
)
def test_a_budget_may_name_its_currency(text: str, asked: tuple[float, str | None]) -> None:
    assert AskedBudget.of_text(text) == AskedBudget(*asked)


@pytest.mark.parametrize("text", ["", "USD", "-1", "0", "0.001", "1e3", "20 usd", "20 dollars", "nan", "9999999999"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"it must be an amount of at least 0\.01"):
        AskedBudget.of_text(text)


def test_the_budget_of_a_draft_is_in_the_currency_of_the_prices() -> None:
    draft = run_of(suspend=True)
    with pytest.raises(RefusedError, match="name it, like --budget '20 USD'"):
        resumed(draft, 20)
    assert resumed(draft, "20 EUR")[1]["budget"] == {"amount": 20.0, "currency": "EUR"}
    draft["spec"] |= {"suspend": True, "budget": {"amount": 1.0, "currency": "USD"}}
    assert resumed(draft, 20)[1]["budget"] == {"amount": 20.0, "currency": "USD"}


def test_a_run_that_is_not_suspended_keeps_its_budget() -> None:
    running = run_of(phase="Running", startTime="2026-01-01T00:00:00Z")
    running["status"]["cost"] = {"amount": 9.0, "currency": "USD", "budget": 10.0}
    assert resumed(running, None)[0] == ""
    with pytest.raises(RefusedError, match=r"is not suspended.*stop it first.*or change spec\.budget"):
        resumed(running, 15.0)


def test_a_run_without_prices_has_no_budget() -> None:
    with pytest.raises(RefusedError, match=r"no spec\.backend\.prices when it started"):
        resumed(run_of(phase="Stopped", suspend=True, startTime="2026-01-01T00:00:00Z"), 5.0)
