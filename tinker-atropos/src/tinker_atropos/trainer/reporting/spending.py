"""What a run has cost so far, earlier attempts included, and whether another step fits into its budget."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rl_contract.prices import TokenPrices
from rl_contract.trainer_messages import RunCost
from tinker_atropos.errors import BudgetReachedError
from tinker_atropos.settings import Spent
from tinker_atropos.trainer.backend.token_use import TokenUse

PER: Final = 1_000_000
"""Prices are of so many tokens."""

DECIMALS: Final = 6
STEPS_COMPARED: Final = 1_000
"""The next step is expected to cost as much as the most expensive of so many."""

NOTHING_SPENT: Final = Spent()


@dataclass
class Spending:
    """`used` is what this process has used, `spent` what earlier attempts have cost. Without `prices` nothing costs
    anything, and nothing is reported.
    """

    used: TokenUse
    prices: TokenPrices | None = None
    spent: Spent = NOTHING_SPENT
    budget: float | None = None
    _at_step: float = 0.0
    _of_steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_COMPARED))

    def __post_init__(self) -> None:
        if self.spent.steps:  # until a step of this attempt is known, the mean of all before
            self._of_steps.append(self.spent.amount / self.spent.steps)
        self._at_step = self.amount

    @property
    def amount(self) -> float:
        """In the currency of the prices."""
        if self.prices is None:
            return 0.0
        used, prices = self.used, self.prices
        cost = used.prefill * prices.prefill + used.sample * prices.sample + used.train * prices.train
        return self.spent.amount + cost / PER

    def step_trained(self) -> dict[str, float]:
        """The metrics of a step; its cost is all that was used since the one before, evaluations included."""
        if self.prices is None:
            return {}
        total = self.amount
        self._of_steps.append(total - self._at_step)
        self._at_step = total
        return {"cost/total": total, "cost/step": self._of_steps[-1]}

    def reached(self, steps: int) -> BudgetReachedError | None:
        """Why no step after `steps` fits into the budget, or None. To save the weights then costs no tokens.

        A step may cost as much as the most expensive of the last ones, and each open sample as much as it was allowed.
        """
        if self.prices is None or self.budget is None:
            return None
        ahead = self.used.open_most * self.prices.sample / PER + max(self._of_steps, default=0.0)
        if self.amount + ahead <= self.budget:
            return None
        currency = self.prices.currency
        return BudgetReachedError(
            f"{_money(self.amount, currency)} of the budget of {_money(self.budget, currency)} (spec.budget) are spent "
            f"after {steps} steps, and what is being sampled and another step may cost {_money(ahead, currency)}"
        )

    def cost(self) -> RunCost | None:
        """What `/status` says. None: without prices."""
        return self._cost(self.amount)

    def cost_at_end(self) -> RunCost | None:
        """The same of the result: samples that were asked for are charged, whether or not they are used."""
        prices = self.prices
        return self._cost(self.amount + self.used.open_tokens * prices.sample / PER) if prices else None

    def _cost(self, amount: float) -> RunCost | None:
        if self.prices is None:
            return None
        return RunCost(amount=round(amount, DECIMALS), currency=self.prices.currency, budget=self.budget)


def _money(amount: float, currency: str) -> str:
    return f"{amount:.4f} {currency}" if amount < 1 else f"{amount:,.2f} {currency}"
