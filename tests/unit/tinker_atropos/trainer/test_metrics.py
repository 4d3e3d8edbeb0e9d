import numpy as np
import pytest

from tinker_atropos import wire
from tinker_atropos.trainer.advantages import group_centred
from tinker_atropos.trainer.datums import Batch, build_batch
from tinker_atropos.trainer.ledger import Ledger, Sampled
from tinker_atropos.trainer.metrics import batch_metrics, training_metrics
from tinker_atropos.trainer.rollouts import Group

GROUP = Group.from_wire(
    wire.Group(
        tokens=[[1, 2, 3], [1, 4]],
        masks=[[-100, 2, 3], [-100, 4]],
        scores=[1.0, 0.0],
        inference_logprobs=[[1.0, -0.1, -0.2], [1.0, -0.6]],
    )
)


def batch_with_steps(first: int, second: int) -> Batch:
    """Two rollouts: two tokens sampled after step `first`, one after step `second`."""
    ledger = Ledger()
    ledger.record(np.array([1]), np.array([2, 3]), Sampled(np.array([-0.1, -0.2]), policy_step=first))
    ledger.record(np.array([1]), np.array([4]), Sampled(np.array([-0.6]), policy_step=second))
    return build_batch([GROUP], group_centred, ledger, max_length=10)


def test_before_the_step() -> None:
    metrics = batch_metrics([GROUP], batch_with_steps(5, 3), policy_step=5)
    assert metrics["reward/mean"] == 0.5
    assert metrics["advantages/mean"] == 0.0
    assert metrics["advantages/std"] == 0.5
    assert metrics["advantages/sum"] == 0.0
    assert metrics["train/tokens"] == 3
    assert metrics["staleness/mean"] == pytest.approx(2 / 3)
    assert metrics["staleness/max"] == 2
    assert metrics["staleness/unknown"] == 0
    assert metrics["batch/rollouts"] == metrics["batch/trained_rollouts"] == 2


def test_the_gap_is_measured_on_tokens_of_the_current_policy_only() -> None:
    batch = batch_with_steps(5, 3)
    training_logprobs = [np.array([-0.1, -0.3]), np.array([-9.0])]
    metrics = training_metrics(batch, training_logprobs, loss_sum=-1.5, policy_step=5)
    assert metrics["train/loss"] == -0.5  # a SUM over three tokens
    assert metrics["logprobs/gap"] == pytest.approx(0.1)
    assert metrics["logprobs/diff"] == pytest.approx(0.05)
    assert metrics["logprobs/kl"] == pytest.approx((np.exp(-0.1) - 1 + 0.1) / 2)
    assert metrics["logprobs/mean"] == pytest.approx(-0.3)
    assert metrics["logprobs/mean_training"] == pytest.approx((-0.1 - 0.3 - 9.0) / 3)
    assert metrics["logprobs/min"] == -0.6
    assert metrics["logprobs/p50"] == -0.2


def test_nothing_is_said_of_the_gap_when_every_token_is_stale() -> None:
    metrics = training_metrics(batch_with_steps(3, 3), [np.array([-0.1, -0.3]), np.array([-9.0])], 0.0, policy_step=5)
    assert "logprobs/gap" not in metrics


def test_a_batch_of_equal_scores_has_rewards_and_reasons_but_no_advantages() -> None:
    metrics = batch_metrics([GROUP], Batch(left_out={"no_advantage": 2}), policy_step=0)
    assert metrics["batch/no_advantage"] == 2
    assert "advantages/mean" not in metrics


def test_tokens_without_a_record_are_counted_as_of_unknown_staleness() -> None:
    batch = build_batch([GROUP], group_centred, Ledger(), max_length=10)
    metrics = batch_metrics([GROUP], batch, policy_step=5)
    assert metrics["staleness/unknown"] == 1.0
    assert "staleness/mean" not in metrics
