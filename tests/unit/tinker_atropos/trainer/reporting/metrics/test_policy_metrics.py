"""The gap between sampler and trainer, by hand in numpy."""

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.reporting.metrics.attributed_groups import attributed, batch_of

from tinker_atropos.trainer.reporting.metrics.batch_metrics import batch_metrics
from tinker_atropos.trainer.reporting.metrics.policy_metrics import gap_metrics, training_metrics


def test_the_gap_by_hand() -> None:
    sampling, training = np.array([-0.1, -0.2, -3.0]), np.array([-0.1, -0.4, -2.0])
    difference = np.array([0.0, 0.2, -1.0])
    weights = np.array([1.0, np.exp(-0.2), np.exp(1.0)])  # p/q
    assert gap_metrics("", sampling, training) == pytest.approx(
        {
            "logprobs/diff": difference.mean(),
            "logprobs/gap": 1.0,
            "logprobs/kl_v1": -0.8 / 3,
            "logprobs/kl_v2": (0.04 + 1.0) / 6,
            "logprobs/ess": weights.sum() ** 2 / (3 * (weights**2).sum()),
        }
    )
    assert gap_metrics("_stale", sampling[:0], training[:0]) == {}


def test_the_effective_sample_size_is_a_fraction_even_if_weights_overflow() -> None:
    one_weight_counts = gap_metrics("", np.array([-2000.0, 0.0, 0.0, 0.0]), np.zeros(4))
    assert one_weight_counts["logprobs/ess"] == pytest.approx(1 / 4)
    assert gap_metrics("", np.full(4, -1.0), np.full(4, -2.0))["logprobs/ess"] == pytest.approx(1.0)


def test_the_estimators_estimate_the_kl_divergence() -> None:
    q, p = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.35, 0.2])
    drawn = np.random.default_rng(0).choice(3, size=200_000, p=q)
    metrics = gap_metrics("", np.log(q)[drawn], np.log(p)[drawn])
    divergence = (q * np.log(q / p)).sum()
    assert metrics["logprobs/kl_v1"] == pytest.approx(divergence, rel=0.15)
    assert metrics["logprobs/kl_v2"] == pytest.approx(divergence, rel=0.15)


def test_the_gap_is_measured_on_current_tokens_separately_from_stale_ones() -> None:
    training_logprobs = [np.array([-0.125, -0.375]), np.array([-9.0])]
    metrics = training_metrics(batch_of(attributed(5, 3)), training_logprobs, loss_sum=-1.5, policy_step=5)
    assert metrics["train/loss"] == -0.5  # a SUM over three tokens
    assert metrics["logprobs/gap"] == pytest.approx(0.125)
    assert metrics["logprobs/diff"] == pytest.approx(0.0625)
    assert metrics["logprobs/gap_stale"] == pytest.approx(8.5)
    assert metrics["logprobs/mean"] == pytest.approx(-0.875 / 3)
    assert metrics["logprobs/mean_training"] == pytest.approx(-9.5 / 3)
    assert metrics["logprobs/min"] == -0.5
    assert metrics["logprobs/p50"] == -0.25


def test_tokens_of_an_unknown_policy_have_no_gap() -> None:
    batch = batch_of(attributed(None, None))
    metrics = training_metrics(batch, [np.array([-0.1, -0.3]), np.array([-9.0])], 0.0, policy_step=5)
    assert not [name for name in metrics if "gap" in name or "kl" in name]
    assert batch_metrics(batch, policy_step=5)["staleness/unknown"] == 1.0
    assert "staleness/mean" not in batch_metrics(batch, policy_step=5)


def test_a_few_unknown_tokens_do_not_improve_what_is_known() -> None:
    """Recomputed logprobs are the trainer's own: with them every gap is 0 and every weight 1."""
    batch = batch_of(attributed(5, None))
    metrics = training_metrics(batch, [np.array([-0.125, -1.25]), batch.datums[1].logprobs_T], 0.0, policy_step=5)
    assert metrics | gap_metrics("", np.array([-0.125, -0.25]), np.array([-0.125, -1.25])) == metrics
    assert metrics["logprobs/ess"] < 0.95
    assert batch_metrics(batch, policy_step=5)["staleness/unknown"] == pytest.approx(1 / 3)
