"""A run that has spent its budget: it rests with its checkpoint until spec.budget is raised or taken away."""

from typing import Final

from rl_operator.api.names import BUDGET_REACHED
from rl_operator.api.status_fields import RunCost
from rl_operator.status.attempt.view import View
from rl_operator.status.text.figure_text import money_spent

RAISE: Final = "raise spec.budget (rlctl resume %s --budget AMOUNT)"


def is_spent(view: View, reason: str | None) -> bool:
    """`reason`: how the newest attempt ended. It kept to the budget of its start; the run may have another one now."""
    cost, budget = cost_so_far(view), view.run.spec.budget
    if reason != BUDGET_REACHED or budget is None:
        return False
    return cost is None or cost.budget is None or budget <= cost.budget


def budget_sentence(view: View, checkpoint_step: int | None) -> str:
    """What was spent, where the run stands, and how it goes on."""
    cost, progress, result = cost_so_far(view), view.run.status.progress, view.pod.result if view.pod else None
    spent = f": {money_spent(cost.amount, cost.currency, cost.budget)} spent" if cost else ""
    steps = result.total_steps if result else progress.total_steps if progress else 0
    total = f" of {steps}" if steps else ""
    kept = (
        f"with a checkpoint of step {checkpoint_step}{total}" if checkpoint_step is not None else "without a checkpoint"
    )
    name = view.run.metadata.name
    return f"BudgetReached{spent}. Stopped {kept}; to go on, {RAISE % name}."


def cost_so_far(view: View) -> RunCost | None:
    """Even if only the pod's result reports it so far."""
    result, before = view.pod.result if view.pod else None, view.run.status.cost
    return result.cost.after(before) if result and result.cost else before
