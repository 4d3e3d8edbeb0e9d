"""Lengths, entropy and reward components by hand in numpy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.metric_table import describe
from tinker_atropos.trainer.data.groups import Group, Shaping, Story, TokenSequence
from tinker_atropos.trainer.reporting.metrics.rollout_metrics import MOST_COMPONENTS, rollout_metrics

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
