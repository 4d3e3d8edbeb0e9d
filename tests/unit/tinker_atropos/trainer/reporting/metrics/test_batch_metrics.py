"""Metrics of a batch by hand in numpy."""

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.reporting.metrics.attributed_groups import GROUP, attributed, batch_of

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.reporting.metrics.batch_metrics import batch_metrics, collection_metrics
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_group


def test_before_the_step() -> None:
    metrics = batch_metrics(batch_of(attributed(5, 3)), policy_step=5)
    expected = {
        "reward/mean": 0.5,
        "reward/std": 0.5,
        "reward/min": 0.0,
        "reward/max": 1.0,
        "batch/groups": 1,
        "batch/rollouts": 2,
        "batch/trained_rollouts": 2,
        "batch/trained_sequences": 2,
        "batch/no_advantage": 0,
        "batch/nothing_generated": 0,
        "batch/truncated": 0,
        "batch/truncated_masked": 0,
        "length/mean": 1.5,
        "length/p95": 1.95,
        "length/right": 2,
        "length/wrong": 1,
        "advantages/mean": 0.0,
        "advantages/std": 0.5,
        "advantages/sum": 0.0,
        "staleness/mean": 2 / 3,
        "staleness/max": 2,
        "staleness/unknown": 0,
    }
    assert metrics == pytest.approx(expected)


def test_rewards_are_over_rollouts_not_sequences() -> None:
    fields = {"tokens": [[1, 2], [1, 3], [1, 4]], "masks": [[-100, 2], [-100, 3], [-100, 4]]}
    fields |= {"scores": [1.0, 1.0, 0.0], "group_overrides": {"rollouts": [0, 0, 1]}}
    metrics = batch_metrics(batch_of(read_group(fields)), policy_step=5)
    assert metrics["reward/mean"] == 0.5
    assert (metrics["batch/rollouts"], metrics["batch/trained_sequences"]) == (2, 3)


def test_the_teachers_terms() -> None:
    teacher = {
        "distill_token_ids": [[[0], [2], [9]], [[0], [4]]],
        "distill_logprobs": [[[0.0], [-0.25], [-9.0]], [[0.0], [-0.25]]],
    }
    metrics = batch_metrics(batch_of(attributed(5, 5, **teacher)), policy_step=5)
    terms = np.array([-0.25 + 0.125, -0.25 + 0.5])
    assert (metrics["distil/tokens"], metrics["distil/other_token"]) == (2, 1)
    assert metrics["distil/advantage_mean"] == pytest.approx(terms.mean())
    assert metrics["distil/advantage_std"] == pytest.approx(terms.std())


def test_rollouts_of_several_sequences_a_muted_one_and_a_teacher_together() -> None:
    """Rollouts of rewards 1 (two sequences), 0 (muted) and 0.5; the teacher's coefficient is 2."""
    fields = {
        "tokens": [[1, 2, 3], [1, 9, 4], [1, 5], [1, 6]],
        "masks": [[-100, 2, 3], [-100, -100, 4], [-100, 5], [-100, 6]],
        "scores": [1.0, 1.0, 0.0, 0.5],
        "group_overrides": {"group_size": 4, "rollouts": [0, 0, 1, 2]},
        "overrides": [{}, {}, {"set_advantage_to_zero": True}, {}],
        "inference_logprobs": [[1.0, -0.5, -0.25], [1.0, 1.0, -0.75], [1.0, -1.0], [1.0, -2.0]],
        "distill_token_ids": [[[0], [2], [7]], [[0], [0], [4]], [[0], [5]], [[0], [6]]],
        "distill_logprobs": [[[0.0], [-0.1], [-0.1]], [[0.0], [0.0], [-0.5]], [[0.0], [-0.5]], [[0.0], [-1.0]]],
    }
    batch = build_batch([read_group(fields)], TrainerSettings(distill_coefficient=2.0))
    terms = 2 * np.array([-0.1 + 0.5, -0.5 + 0.75, -1.0 + 2.0])  # nothing of the muted one
    of_each_token = [[0.5 + terms[0], 0.5], [0.0, 0.5 + terms[1]], [0.0], [0.0 + terms[2]]]
    for datum, expected in zip(batch.datums, of_each_token, strict=True):
        np.testing.assert_allclose(datum.advantages_T, expected)
    of_each_sequence = np.array([(1.0 + terms[0]) / 2, 0.5 + terms[1], 0.0, terms[2]])
    metrics = batch_metrics(batch, policy_step=0)
    expected = {
        "reward/mean": 0.5,
        "reward/std": np.std([1.0, 0.0, 0.5]),
        "batch/rollouts": 3,
        "batch/trained_rollouts": 3,
        "batch/trained_sequences": 4,
        "advantages/mean": of_each_sequence.mean(),
        "advantages/std": of_each_sequence.std(),
        "advantages/sum": of_each_sequence.sum(),
        "distil/tokens": 3,
        "distil/other_token": 1,
        "distil/advantage_mean": terms.mean(),
        "distil/advantage_std": terms.std(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


def test_the_share_of_tokens_of_which_a_teacher_named_the_likeliest() -> None:
    fields = {
        **GROUP,
        "distill_token_ids": [[[], [2, 1], []], [[], [4, 5]]],
        "distill_logprobs": [[[], [-1.0, -1.0], []], [[], [-0.5, -2.0]]],
    }
    batch = batch_of(read_group(fields))
    metrics = batch_metrics(batch, policy_step=0)
    found = {name: value for name, value in metrics.items() if name.startswith("distil/")}
    assert found == {"distil/tokens": 2, "distil/token_fraction": 2 / batch.trained_tokens}


def test_a_token_of_a_later_step_has_no_negative_staleness() -> None:
    metrics = batch_metrics(batch_of(attributed(7, 5)), policy_step=5)
    assert (metrics["staleness/mean"], metrics["staleness/max"]) == (0.0, 0.0)


def test_a_batch_of_equal_scores_has_rewards_and_reasons_but_no_advantages() -> None:
    equal = read_group({**GROUP, "scores": [1.0, 1.0]})
    metrics = batch_metrics(batch_of(equal), policy_step=0)
    assert (metrics["batch/no_advantage"], metrics["batch/trained_rollouts"]) == (2, 0)
    assert "advantages/mean" not in metrics


def test_the_cost_of_collecting_a_batch() -> None:
    groups = (attributed(5, 5), read_group({**GROUP, "scores": [1.0, 1.0]}))
    collected = Collected(groups, {"stale": 4}, dropped_tokens=6, recomputed=1, unknown_overrides=3, waited=1.0)
    assert collection_metrics(collected, batch_of(*groups)) == {
        "batch/received_tokens": 12,
        "batch/trained_tokens": 3,
        "batch/trained_fraction": 0.25,
        "batch/dropped_stale": 4,
        "batch/dropped_no_logprobs": 0,
        "batch/dropped_untrainable_sampling": 0,
        "batch/dropped_too_long": 0,
        "batch/dropped_no_gradient": 0,
        "batch/recomputed_logprobs": 1,
        "batch/unknown_overrides": 3,
    }
