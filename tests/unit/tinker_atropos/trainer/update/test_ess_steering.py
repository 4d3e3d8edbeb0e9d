"""The effective sample size, and what follows from it: fresher rollouts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trainer.update.test_loss_clips import STEP, datum

from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, Shaping
from tinker_atropos.trainer.update.ess_steering import (
    ENOUGH,
    LEAST,
    RISE,
    AllowedStaleness,
    EssLosses,
    effective_sample_size,
    ess_losses,
)


@given(st.lists(st.floats(-20, 20), min_size=1))
def test_the_effective_sample_size(log_ratios) -> None:
    weights = np.exp(np.array(log_ratios))
    expected = weights.sum() ** 2 / (len(weights) * (weights**2).sum())
    assert effective_sample_size(np.array(log_ratios)) == pytest.approx(expected)
    assert effective_sample_size(np.array(log_ratios) + 1_000) == pytest.approx(expected)


def test_fresh_and_stale_tokens_lose_apart() -> None:
    """Ratios 1 and 3 of stale tokens, 1 and 2 of fresh ones; those of unknown or later weights are neither."""
    n = ENOUGH
    steps = [*[STEP - 1, STEP - 4] * n, *[STEP] * 2 * n, UNKNOWN_STEP, STEP + 1]
    ratios = np.array([*[1.0, 3.0] * n, *[1.0, 2.0] * n, 1e9, 1e9])
    row = datum([0.1] * len(steps), [1.0] * len(steps), steps=steps)
    logprobs = [row.logprobs_T + np.log(ratios)]
    expected = EssLosses(pytest.approx(-math.log(9 / 10)), pytest.approx(-math.log(16 / 20)), 2.5)
    assert ess_losses(TrainingBatch(datums=[row]), logprobs, STEP) == expected
    later = TrainingBatch(datums=[row, row])  # the second is of a later optimizer step
    assert ess_losses(later, [*logprobs, logprobs[0] + 1.0], STEP, first_datums=1) == expected


def test_few_tokens_say_nothing() -> None:
    few = datum([0.1] * (ENOUGH - 1), [1.0] * (ENOUGH - 1), steps=[STEP] * (ENOUGH - 1))
    assert ess_losses(TrainingBatch(datums=[few]), [few.logprobs_T], STEP) == EssLosses()
    assert ess_losses(TrainingBatch(), [], STEP) == EssLosses()


def test_a_single_token_moves_nothing() -> None:
    """One of ratio 50 among 10,000: without the cap it would lose as much as an ESS of 0.81."""
    row = datum([0.1] * 10_000, [1.0] * 10_000)
    drift = 0.1 * np.random.default_rng(0).standard_normal(10_000)
    losses = []
    for first in (drift[0], math.log(50)):
        drift[0] = first
        losses.append(ess_losses(TrainingBatch(datums=[row]), [row.logprobs_T + drift], STEP).stale)
    assert losses == [pytest.approx(0.01, rel=0.05), pytest.approx(losses[0], abs=5e-3)]


@pytest.mark.parametrize(
    ("shaping", "shaped"),
    [(None, False), (Shaping(1.0, 1.0, -1), False), (Shaping(0.7, 1.0, -1), True), (Shaping(1.0, 0.9, -1), True)],
)
def test_how_groups_were_sampled_is_known(shaping, shaped) -> None:
    row = datum([0.1], [1.0])
    batch = TrainingBatch([Group((), np.zeros(0, np.int64), shaping=shaping)], [row])
    assert ess_losses(batch, [row.logprobs_T], STEP).shaped == shaped


def stale(ess: float, age: float, fresh: float | None = None, *, shaped: bool = False) -> EssLosses:
    """By effective sample sizes."""
    return EssLosses(None if fresh is None else -math.log(fresh), -math.log(ess), age, shaped)


def test_it_allows_what_the_measured_cost_affords() -> None:
    """At an ESS of 0.95 after 2 steps of age, one of 0.9 is reached after 2 log 0.9 / log 0.95 of them."""
    allowed = AllowedStaleness(8, 0.9)
    assert (allowed.steps, allowed.sentence) == (LEAST, None)
    for _ in range(40):
        before = allowed.allowed
        allowed.trained(stale(0.95, 2.0))
        assert allowed.allowed <= before + RISE
    assert allowed.allowed == pytest.approx(2 * math.log(0.9) / math.log(0.95))
    assert allowed.steps == 4
    assert "trainer.max_staleness (8)" in allowed.sentence
    assert "learning_rate" in allowed.sentence

    for _ in range(40):
        allowed.trained(stale(0.5, 4.0))
    assert allowed.steps == LEAST
    for _ in range(40):
        allowed.trained(stale(0.9999, 1.0))
    assert (allowed.steps, allowed.sentence) == (8, None)


GAP, SHAPED = "the backend samples and trains with different", "sampled with temperature, top_p or top_k"


@pytest.mark.parametrize("always_fresh", [True, False], ids=["fresh tokens in each step", "in the first one only"])
@pytest.mark.parametrize(
    ("mismatch", "shaped", "cause"),
    [(0.99, False, None), (0.97, False, None), (0.97, True, None), (0.94, False, GAP), (0.9, True, SHAPED)],
)
def test_what_fresh_tokens_lose_is_no_cost_of_age(mismatch, shaped, cause, always_fresh) -> None:
    """Age costs so little that 12 steps are affordable: then 8 stay allowed, and no learning rate is blamed."""
    allowed = AllowedStaleness(8, 0.95)
    for step in range(60):
        aged = mismatch * 0.95 ** (allowed.steps / 12)
        fresh = mismatch if always_fresh or step == 0 else None
        allowed.trained(stale(aged, float(allowed.steps), fresh, shaped=shaped))
    assert allowed.steps == 8
    assert (cause or "") in (allowed.sentence or "")
    assert (allowed.sentence is None) == (cause is None)
    assert "a lower trainer.learning_rate would" not in (allowed.sentence or "")


def test_both_causes_are_named() -> None:
    allowed = AllowedStaleness(8, 0.95)
    for _ in range(40):
        allowed.trained(stale(0.9 * 0.9, 1.0, 0.9))
    assert allowed.steps == LEAST
    assert "a lower trainer.learning_rate would" in allowed.sentence
    assert GAP in allowed.sentence


def test_a_mismatch_that_is_gone_is_not_subtracted_forever() -> None:
    """Fresh tokens were seen in the first step only, and the policy has become surer of itself since then."""
    allowed = AllowedStaleness(8, 0.95)
    allowed.trained(EssLosses(fresh=0.2))
    for _ in range(60):
        allowed.trained(stale(0.99, 1.0))
    for _ in range(60):
        allowed.trained(stale(0.85, 1.0))
    assert allowed.steps == LEAST


def test_one_bad_batch_is_not_all_that_counts() -> None:
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(20):
        allowed.trained(stale(0.99, 4.0))
    assert allowed.steps == 8
    allowed.trained(stale(0.5, 4.0))
    assert 2 < allowed.allowed < 8


def test_an_effective_sample_size_that_was_rounded_up_costs_nothing() -> None:
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(20):
        allowed.trained(stale(1 + 1e-15, 1.0))
    assert (allowed.steps, allowed.sentence) == (8, None)


def test_without_stale_tokens_it_rises() -> None:
    """An environment that never runs ahead is not slowed down once it does."""
    allowed = AllowedStaleness(8, 0.9)
    for _ in range(5):
        allowed.trained(EssLosses())
    assert allowed.allowed == LEAST + 5 * RISE


@pytest.mark.parametrize(("most", "min_ess", "first"), [(8, 0.0, 8), (0, 0.9, 0), (3, 0.0, 3), (1, 0.5, 1)])
def test_it_never_allows_more_than_the_configuration(most, min_ess, first) -> None:
    allowed = AllowedStaleness(most, min_ess)
    assert allowed.steps == first
    for ess in (1.0, 0.01, 1.0):
        allowed.trained(stale(ess, 1.0))
        assert allowed.steps == first
    assert (allowed.sentence is None) or min_ess
