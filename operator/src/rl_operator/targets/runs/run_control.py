"""Stop and resume a run: the same for rlctl and the page; and whether a GitOps tool will revert it.

Such tools leave their names in labels and annotations. `app.kubernetes.io/instance` is not proof: Helm and users set
it, too, and Argo CD only if configured to.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import BUDGET_REACHED, DEFAULT_RUNTIME, STARTED_AS_ANNOTATION
from rl_operator.api.training_run import LARGEST_BUDGET, SMALLEST_BUDGET
from rl_operator.operator_errors import ForbiddenError, RefusedError
from rl_operator.targets.runs.run_lookup import existing_run, was_restored
from rl_operator.targets.target import Note, Target

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


OVER = ("Succeeded", "Failed")

Action = Literal["stop", "resume"]


@dataclass(frozen=True)
class Offer:
    """What the owner of a run may do with it now, and what to know before."""

    action: Action
    warning: str = ""


def offer_of(run: Manifest) -> Offer | None:
    """None: it is over, or has spent its budget, which has to be raised."""
    if run.get("status", {}).get("phase") in OVER:
        return None
    suspended = bool(run["spec"].get("suspend"))
    if not suspended and has_spent_its_budget(run):
        return None
    if suspended or was_restored(run):
        return Offer("resume", (suspend_warning(run, suspend=False) or "") if suspended else "")
    return Offer("stop", suspend_warning(run, suspend=True) or "")


def has_spent_its_budget(run: Manifest) -> bool:
    conditions = run.get("status", {}).get("conditions") or ()
    return any(each.get("reason") == BUDGET_REACHED and each.get("type") == "Suspended" for each in conditions)


@dataclass(frozen=True, slots=True)
class AskedBudget:
    """A budget as a person gives it. `currency` None: that of the prices."""

    amount: float
    currency: str | None = None

    @classmethod
    def of_text(cls, text: str) -> "AskedBudget":
        """Raises RefusedError unless it is an amount, with or without the code of a currency after it."""
        found = re.fullmatch(r"\s*(\d{1,10}(?:\.\d+)?)\s*([A-Z]{3})?\s*", text, re.ASCII)
        if found is None or not SMALLEST_BUDGET <= float(found[1]) <= LARGEST_BUDGET:
            raise RefusedError(
                f"the budget is {text!r}; it must be an amount of at least {SMALLEST_BUDGET}, and may name the "
                "currency: 20, or '20 USD'"
            )
        return cls(float(found[1]), found[2])

    def to_wire(self, target: Target, run: Manifest) -> dict[str, Any]:
        """`spec.budget` of this run. Raises RefusedError if it names no currency and the prices cannot be read."""
        return {"amount": self.amount, "currency": self.currency or _currency(target, run)}


def _currency(target: Target, run: Manifest) -> str:
    """That of what the run has cost, or of its runtime's prices, or of its budget."""
    if cost := run.get("status", {}).get("cost"):
        return str(cost["currency"])
    name = run["spec"].get("runtime", DEFAULT_RUNTIME)
    with contextlib.suppress(ForbiddenError):
        runtime = target.runtimes().get(name)
        if runtime is not None and runtime.spec.backend.prices is not None:
            return runtime.spec.backend.prices.currency
    if budget := run["spec"].get("budget"):
        return str(budget["currency"])
    raise RefusedError(
        f"the budget of run {run['metadata']['name']} names no currency, and no prices of runtime {name} (its "
        "spec.backend.prices) can be read: name it, like --budget '20 USD'"
    )


def _wrong_budget(status: Mapping[str, Any], asked: AskedBudget | None, *, spent: bool) -> str:
    cost = status.get("cost")
    if asked is None:
        return f"has spent its budget: {status.get('message', '')}" if spent else ""
    if "startTime" in status and cost is None:
        return "cannot have a budget: its runtime had no spec.backend.prices when it started"
    if cost and asked.currency not in (None, cost["currency"]):
        return f"has its prices in {cost['currency']}: give the budget in that currency, not in {asked.currency}"
    budget = asked.amount
    if cost and budget <= cost["amount"]:
        return f"has cost {cost['amount']:g} {cost['currency']} already: a budget of {budget:g} is not more than that"
    if spent and cost and budget <= cost.get("budget", 0):
        return f"stopped at a budget of {cost['budget']:g} {cost['currency']}: {budget:g} is not more than that"
    return ""


def stop_run(target: Target, namespace: str, name: str, note: Note) -> None:
    """Ask for it. Raises RefusedError."""
    run = existing_run(target, namespace, name)
    if (phase := run.get("status", {}).get("phase")) in OVER:
        raise RefusedError(f"run {name} of {target.label} is over ({phase}); there is nothing to stop")
    if warning := suspend_warning(run, suspend=True):
        note(warning)
    target.change_spec(namespace, name, {"suspend": True})


def resume_run(
    target: Target,
    namespace: str,
    name: str,
    install: Callable[[Manifest], None],
    note: Note,
    *,
    budget: AskedBudget | None = None,
) -> str:
    """Start a draft, or continue a stopped run. `install`: what its environment needs; `budget`: what the run may cost
    in all from now on. Returns what it does now; empty if there was nothing to do. Raises RefusedError.
    """
    run = existing_run(target, namespace, name)
    status = run.get("status", {})
    if (phase := status.get("phase")) in OVER:
        raise RefusedError(
            f"run {name} of {target.label} is over ({phase}); to train on from its weights, start a run with "
            f"startFrom: {{run: {name}}}"
        )
    restored = was_restored(run)
    spent = has_spent_its_budget(run)
    if why := _wrong_budget(status, budget, spent=spent):
        raise RefusedError(f"run {name} of {target.label} {why}")
    if not run["spec"].get("suspend") and not restored and not spent:
        if budget is not None:
            raise RefusedError(
                f"run {name} of {target.label} is not suspended, so it keeps its budget: stop it first, then resume it "
                "with this one; or change spec.budget of the run, which holds from its next attempt on"
            )
        return ""
    if run["spec"].get("suspend") and (warning := suspend_warning(run, suspend=False)):
        note(warning)
    install(run)
    raised = {} if budget is None else {"budget": budget.to_wire(target, run)}
    target.change_spec(
        namespace, name, {"suspend": False, **raised}, {STARTED_AS_ANNOTATION: None} if restored else None
    )
    if restored:
        return "was restored from a backup and trains from the beginning"
    return "continues from its last checkpoint" if "startTime" in status else "starts"
