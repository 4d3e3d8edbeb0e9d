"""What a run costs, and when it stops: prices are of a million tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.logged_metrics import describe
from rl_contract.prices import TokenPrices
from rl_contract.trainer_messages import RunCost
from tinker_atropos.settings import Spent
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.reporting.spending import Spending

PRICES = TokenPrices(prefill=1.0, sample=2.0, train=4.0, currency="USD")
MILLION = 1_000_000


def step(spending: Spending, tokens: int) -> dict[str, float]:
    """A step that trains so many tokens."""
    spending.used.train += tokens
    return spending.step_trained()


def test_the_cost_is_each_columns_tokens_at_its_price() -> None:
    spending = Spending(TokenUse(prefill=3 * MILLION, sample=2 * MILLION, train=MILLION), PRICES)
    assert spending.amount == 3 + 4 + 4
    assert spending.cost() == RunCost(amount=11.0, currency="USD")


def test_without_prices_nothing_is_reported_and_nothing_stops() -> None:
    spending = Spending(TokenUse(train=MILLION), budget=0.01)
    assert (spending.cost(), spending.cost_at_end(), step(spending, MILLION), spending.reached(3)) == (
        None,
        None,
        {},
        None,
    )


def test_the_cost_goes_on_from_earlier_attempts() -> None:
    spending = Spending(TokenUse(), PRICES, Spent(7.5, 3))
    assert step(spending, MILLION) == {"cost/total": 11.5, "cost/step": 4.0}
    assert step(spending, MILLION // 2) == {"cost/total": 13.5, "cost/step": 2.0}
    assert [name for name in step(spending, 0) if describe(name) is None] == []


def test_it_stops_before_the_most_expensive_of_the_last_steps_would_pass_the_budget() -> None:
    spending = Spending(TokenUse(), PRICES, budget=20.0)
    assert spending.reached(0) is None
    step(spending, 2 * MILLION)  # 8
    step(spending, MILLION)  # 12
    assert spending.reached(2) is None, "12 + 8 is the budget"
    step(spending, 1)
    reached = spending.reached(3)
    assert str(reached) == (
        "12.00 USD of the budget of 20.00 USD (spec.budget) are spent after 3 steps, and what is being sampled and "
        "another step may cost 8.00 USD"
    )
    assert reached is not None
    assert reached.error_class == "budget"


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(1, 40))
def test_it_passes_the_budget_by_no_more_than_what_a_step_costs_more_than_all_before(costs, budget) -> None:
    spending, dearest = Spending(TokenUse(), TokenPrices(0.0, 0.0, 1.0, "USD"), budget=float(budget)), 0
    for number, cost in enumerate(costs):
        if spending.reached(number):
            break
        step(spending, cost * MILLION)
        assert spending.amount <= budget + max(0, cost - dearest)
        dearest = max(dearest, cost)


def test_what_is_asked_for_and_not_answered_counts_as_spent() -> None:
    spending = Spending(TokenUse(), PRICES, budget=10.0)
    with spending.used.sampling(0, 1, MILLION) as answered_with:
        answered_with(MILLION)
    with spending.used.sampling(0, 4, MILLION) as answered_with:  # expected to be as long as the one before
        assert spending.cost() == RunCost(amount=2.0, currency="USD", budget=10.0)
        assert spending.cost_at_end() == RunCost(amount=10.0, currency="USD", budget=10.0)
        answered_with(0)


def test_an_open_sample_may_become_as_long_as_it_was_allowed() -> None:
    spending = Spending(TokenUse(), PRICES, budget=8.0)
    with spending.used.sampling(0, 4, MILLION):
        assert spending.reached(1) is None
        spending.used.prefill += 1
        assert spending.reached(1) is not None
    assert spending.reached(1) is None


@pytest.mark.parametrize(("budget", "stops"), [(19.9, True), (20.1, False)])
def test_before_its_first_step_an_attempt_expects_the_mean_of_those_before(budget: float, stops: bool) -> None:
    spending = Spending(TokenUse(), PRICES, Spent(15.0, 3), budget)
    assert (spending.reached(3) is not None) is stops


def test_a_cost_below_a_unit_is_said_with_its_digits() -> None:
    spending = Spending(TokenUse(train=1000), PRICES, budget=0.004)
    assert spending.reached(1) is None
    spending.used.train += 100
    assert "0.0044 USD of the budget of 0.0040 USD" in str(spending.reached(1))
