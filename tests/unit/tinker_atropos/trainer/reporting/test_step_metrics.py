"""Metrics of a batch by hand in numpy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.trainer.reporting.attributed_groups import GROUP, attributed, batch_of

from rl_contract.logged_metrics import describe
from rl_contract.trainer_settings import RolloutSampling, TrainerSettings
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import Group, Shaping, Story, TokenSequence
from tinker_atropos.trainer.reporting.step_metrics import (
    MOST_COMPONENTS,
    PARTS,
    Stopwatch,
    batch_metrics,
    collection_metrics,
    gap_metrics,
    kl_warning,
    recomputed_warning,
    rollout_metrics,
    tempered_warning,
    training_metrics,
)
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_group


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_parts_of_a_lap_have_their_given_names() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 10
    watch.spent("preparing", {"waiting": 7.5})
    clock.now += 5
    watch.spent("preparing", {"forward_backward": 3.0, "optim_step": 1.0, "snapshot": 0.5})
    clock.now += 0.25
    assert watch.lap() == {
        "time/waiting": 7.5,
        "time/base_logprobs": 0.0,
        "time/forward": 0.0,
        "time/preparing": 3.25,
        "time/forward_backward": 3.0,
        "time/optim_step": 1.0,
        "time/snapshot": 0.5,
        "time/reporting": 0.0,
        "time/saving": 0.0,
        "time/step": 15.25,
        "time/own_share": 3.25 / 15.25,
    }
    clock.now += 2
    watch.spent("reporting")
    assert watch.lap()["time/reporting"] == 2.0  # after its step's metrics: named in the next lap


@given(st.lists(st.tuples(st.sampled_from([*PARTS, "lap"]), st.floats(0, 1e4)), max_size=30))
def test_every_second_has_a_name(spent: list[tuple[str, float]]) -> None:
    clock = Clock()
    watch, named = Stopwatch(clock), 0.0
    for part, seconds in [*spent, ("lap", 1.0)]:
        clock.now += seconds
        if part != "lap":
            watch.spent(part)
            continue
        lap = watch.lap()
        assert sum(lap[f"time/{part}"] for part in PARTS) == pytest.approx(lap["time/step"])
        assert 0.0 <= lap["time/own_share"] <= 1.0 + 1e-9
        named += lap["time/step"]
    assert named == pytest.approx(clock.now - 100.0)


def test_recomputed_logprobs_warn_past_a_tenth_of_the_batch() -> None:
    assert recomputed_warning(0, 0) is None
    assert recomputed_warning(1, 10) is None
    sentence = recomputed_warning(2, 10)
    assert sentence is not None
    assert sentence.startswith("more than 10% of the batch (batch/recomputed_logprobs) is not what was sampled here")
    assert sentence == recomputed_warning(10, 10), "it does not change with each batch"


def test_a_warning_past_the_limit() -> None:
    assert kl_warning({"logprobs/kl_v2": 0.05}, 0.05) is None
    assert kl_warning({}, 0.05) is None
    assert "0.07 nats apart" in (kl_warning({"logprobs/kl_v2": 0.07}, 0.05) or "")


PLAIN = Shaping(1.0, 1.0, -1)


def group(*sequences: tuple[list[float], float], shaping: Shaping | None = PLAIN, **story: object) -> Group:
    """A rollout for each sequence: a prompt of one token, then these logprobs; and its score."""
    made = [
        TokenSequence(
            tokens_T=np.arange(1 + len(logprobs)),
            generated_T=np.array([False, *[True] * len(logprobs)]),
            logprobs_T=np.array([np.nan, *logprobs]),
            policy_step_T=np.array([-1, *[3] * len(logprobs)]),
            score=score,
        )
        for logprobs, score in sequences
    ]
    return Group(tuple(made), np.arange(len(made)), shaping=shaping, story=Story(**story))


def test_lengths_are_of_rollouts_right_and_wrong() -> None:
    groups = [group(([-1.0] * 2, 1.0), ([-1.0] * 4, 0.5)), group(([-1.0] * 9, 0.0), ([-1.0] * 1, 1.5))]
    metrics = rollout_metrics(groups)
    assert metrics["length/mean"] == 4
    assert metrics["length/p95"] == pytest.approx(np.percentile([2, 4, 9, 1], 95))
    assert (metrics["length/right"], metrics["length/wrong"]) == (1.5, 6.5)
    assert "length/right" not in rollout_metrics([group(([-1.0], 0.0))])


def test_a_rollout_of_several_turns_has_the_length_of_all() -> None:
    turns = replace(group(([-1.0] * 2, 1.0), ([-1.0] * 3, 1.0)), rollout_of_S=np.array([0, 0]))
    assert rollout_metrics([turns])["length/mean"] == 5


@given(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6))
def test_the_entropy_is_estimated_from_what_was_drawn(weights: list[float]) -> None:
    probabilities = np.array(weights) / sum(weights)
    drawn = np.random.default_rng(0).choice(len(probabilities), size=20_000, p=probabilities)
    found = rollout_metrics([group((np.log(probabilities)[drawn].tolist(), 1.0))])["train/entropy"]
    assert found == pytest.approx(-(probabilities * np.log(probabilities)).sum(), abs=0.05)


def test_other_distributions_and_recomputed_logprobs_say_nothing_of_the_entropy() -> None:
    ours, cold = group(([-0.5, -1.5], 1.0)), group(([-9.0], 1.0), shaping=Shaping(0.7, 1.0, -1))
    cut, mixed = group(([-9.0], 1.0), shaping=Shaping(1.0, 0.9, -1)), group(([-9.0], 1.0), shaping=None)
    assert rollout_metrics([ours, cold, cut, mixed])["train/entropy"] == pytest.approx(1.0)
    assert "train/entropy" not in rollout_metrics([cold, cut, mixed])
    [sequence] = ours.sequences_S
    recomputed = replace(sequence, recomputed_T=np.array([False, True, False]))
    assert rollout_metrics([replace(ours, sequences_S=(recomputed,))])["train/entropy"] == pytest.approx(1.5)


def test_components_are_means_over_the_rollouts_that_have_them() -> None:
    parts = [{"format": 1.0, "right / wrong": 0.0}, {"format": 0.0}]
    metrics = rollout_metrics([group(([-1.0], 1.0), ([-1.0], 0.0), components_R=parts), group(([-1.0], 1.0))])
    assert metrics["reward/component/format"] == 0.5
    assert metrics["reward/component/right___wrong"] == 0.0
    assert [name for name in metrics if describe(name) is None] == []


@pytest.mark.parametrize("sent", [None, "parts", [None, 3], [{"a": "much"}, {"a": float("nan")}], {"a": 1.0}])
def test_what_others_send_as_components_breaks_nothing(sent: object) -> None:
    metrics = rollout_metrics([group(([-1.0], 1.0), ([-1.0], 0.0), components_R=sent)])
    assert not [name for name in metrics if "component" in name]


def test_names_of_components_are_bounded_in_number_and_length() -> None:
    parts = [{f"{number:03}" + "x" * 200: 1.0 for number in range(100)}]
    named = [name for name in rollout_metrics([group(([-1.0], 1.0), components_R=parts)]) if "component" in name]
    assert len(named) == MOST_COMPONENTS
    assert max(map(len, named)) < 70


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


def test_figures_of_tempered_samples_are_said_to_be_of_two_distributions() -> None:
    assert tempered_warning(RolloutSampling()) is None
    sentence = tempered_warning(RolloutSampling(temperature=0.7)) or ""
    assert sentence.startswith("rollouts are sampled with temperature 0.7, top_p 1, top_k -1 (trainer.sampling)")
