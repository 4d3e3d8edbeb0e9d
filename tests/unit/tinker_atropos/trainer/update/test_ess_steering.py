"""The effective sample size, and what follows from it: fresher rollouts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trainer.update.test_trust_region import STEP, datum

from tinker_atropos.trainer.data.groups import UNKNOWN_STEP
from tinker_atropos.trainer.update.ess_steering import (
    LEAST,
    RISE,
    AllowedStaleness,
    StaleTokens,
    effective_sample_size,
    stale_tokens,
)


@given(st.lists(st.floats(-20, 20), min_size=1))
def test_the_effective_sample_size(log_ratios) -> None:
    weights = np.exp(np.array(log_ratios))
    expected = weights.sum() ** 2 / (len(weights) * (weights**2).sum())
    assert effective_sample_size(np.array(log_ratios)) == pytest.approx(expected)
    assert effective_sample_size(np.array(log_ratios) + 1_000) == pytest.approx(expected)


def test_stale_tokens_are_those_of_older_weights() -> None:
    """Ratios 1 and 3 of stale tokens, 2, 5 and 7 of others."""
    rows = [
        datum([0.1] * 3, [1.0] * 3, steps=[STEP - 1, STEP, STEP - 4]),
        datum([0.1] * 3, [1.0] * 3, steps=[UNKNOWN_STEP, STEP - 9, STEP + 1], trained=[True, False, True]),
    ]
    logprobs = [np.log([0.1, 0.2, 0.3]), np.log([0.5, 0.9, 0.7])]
    assert stale_tokens(rows, logprobs, STEP) == StaleTokens(pytest.approx((1 + 3) ** 2 / (2 * (1 + 9))), 2.5)
    assert stale_tokens(rows[1:], logprobs[1:], STEP) is None
    assert stale_tokens([], [], STEP) is None


def test_it_allows_what_the_measured_cost_affords() -> None:
    """At an ESS of 0.95 after 2 steps of age, one of 0.9 is reached after 2 log 0.9 / log 0.95 of them."""
    allowed = AllowedStaleness(8, 0.9)
    assert (allowed.steps, allowed.sentence) == (LEAST, None)
    for _ in range(40):
        before = allowed.allowed
        allowed.trained(StaleTokens(0.95, 2.0))
        assert allowed.allowed <= before + RISE
    assert allowed.allowed == pytest.approx(2 * math.log(0.9) / math.log(0.95))
    assert allowed.steps == 4
    assert "trainer.max_staleness (8)" in allowed.sentence

    for _ in range(40):
        allowed.trained(StaleTokens(0.5, 4.0))
    assert allowed.steps == LEAST
    for _ in range(40):
        allowed.trained(StaleTokens(0.9999, 1.0))
    assert (allowed.steps, allowed.sentence) == (8, None)


def test_one_bad_batch_is_not_all_that_counts() -> None:
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(20):
        allowed.trained(StaleTokens(0.99, 4.0))
    assert allowed.steps == 8
    allowed.trained(StaleTokens(0.5, 4.0))
    assert 2 < allowed.allowed < 8


def test_an_effective_sample_size_that_was_rounded_up_costs_nothing() -> None:
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(20):
        allowed.trained(StaleTokens(1 + 1e-15, 1.0))
    assert (allowed.steps, allowed.sentence) == (8, None)


def test_without_stale_tokens_it_rises() -> None:
    """An environment that never runs ahead is not slowed down once it does."""
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(5):
        allowed.trained(None)
    assert allowed.allowed == LEAST + 5 * RISE


@pytest.mark.parametrize(("most", "min_ess", "first"), [(8, 0.0, 8), (0, 0.9, 0), (3, 0.0, 3), (1, 0.5, 1)])
def test_it_never_allows_more_than_the_configuration(most, min_ess, first) -> None:
    allowed = AllowedStaleness(most, min_ess)
    assert allowed.steps == first
    for ess in (1.0, 0.01, 1.0):
        allowed.trained(StaleTokens(ess, 1.0))
        assert allowed.steps == first
    assert (allowed.sentence is None) or min_ess
