"""The rewards that advantages are computed of: each row against numpy, and who is masked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.advantages import (
    ADVANTAGES,
    TRUNCATION,
    advantages,
    group_advantages,
    shaped_rewards,
)
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, TokenSequence
from tinker_atropos.trainer.reporting.step_metrics import batch_metrics

PROMPT = 2


def sequence(length: int, score: float, *, truncated: bool = False) -> TokenSequence:
    """A prompt of two tokens, and `length` generated ones."""
    total = PROMPT + length
    generated_T = np.arange(total) >= PROMPT
    return TokenSequence(
        tokens_T=np.arange(total),
        generated_T=generated_T,
        logprobs_T=np.where(generated_T, -0.5, np.nan),
        policy_step_T=np.full(total, UNKNOWN_STEP),
        score=score,
        truncated=truncated,
    )


def group(*rollouts: tuple[float, int, bool]) -> Group:
    """Rollouts of one sequence: reward, generated tokens, and whether it was cut off by length."""
    sequences = tuple(sequence(length, score, truncated=truncated) for score, length, truncated in rollouts)
    return Group(sequences, np.arange(len(sequences)))


MIXED = group((1.0, 4, False), (1.0, 8, True), (0.0, 2, False), (-0.5, 8, True))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("train", [1.0, 1.0, 0.0, -0.5]),
        ("mask", [1.0, 1.0, 0.0, -0.5]),
        ("zero", [1.0, 0.0, 0.0, 0.0]),
        ("clamp", [1.0, 0.0, 0.0, -0.5]),
    ],
)
def test_what_a_truncated_rollout_is_worth(policy, expected) -> None:
    config = TrainerSettings(truncated_rollouts=policy)
    assert shaped_rewards(MIXED, config).tolist() == expected
    assert group_advantages(MIXED, config) == pytest.approx(np.array(expected) - np.mean(expected))
    assert MIXED.scores_R.tolist() == [1.0, 1.0, 0.0, -0.5]  # what people see


def test_every_choice_has_a_row() -> None:
    choices = TrainerSettings.model_fields["truncated_rollouts"].annotation.__args__
    assert set(TRUNCATION) == set(choices)


def test_equal_rewards_of_different_lengths_have_a_gradient() -> None:
    solved = group((1.0, 4, False), (1.0, 8, False))
    assert not build_batch([solved], TrainerSettings()).datums
    shorter, longer = build_batch([solved], TrainerSettings(length_penalty=100.0)).datums
    assert shorter.advantages_T[-1] == pytest.approx(0.2)
    assert longer.advantages_T[-1] == pytest.approx(-0.2)


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.integers(1, 50), st.booleans()), min_size=1, max_size=8),
    st.sampled_from(sorted(TRUNCATION)),
    st.floats(0, 500),
)
def test_the_formula(rollouts, policy, coefficient) -> None:
    rewards, lengths, truncated = (np.array(column) for column in zip(*rollouts, strict=True))
    expected = rewards.astype(float).copy()
    if policy == "zero":
        expected[truncated] = 0.0
    if policy == "clamp":
        expected[truncated] = np.minimum(expected[truncated], 0.0)
    expected -= coefficient * np.mean(rewards >= 1.0) * lengths / 1000
    config = TrainerSettings(truncated_rollouts=policy, length_penalty=coefficient)
    assert shaped_rewards(group(*rollouts), config) == pytest.approx(expected)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.integers(1, 5), st.booleans()), min_size=2, max_size=6))
def test_masked_rollouts_count_in_the_baseline_and_no_token_of_them_is_trained(rollouts) -> None:
    asked = group(*rollouts)
    batch = build_batch([asked], TrainerSettings(truncated_rollouts="mask"))
    trained, left_out = batch.trained_rollouts, batch.left_out
    assert left_out["truncated_masked"] == sum(truncated for _, _, truncated in rollouts)
    assert trained + left_out["truncated_masked"] + left_out["no_advantage"] == len(rollouts)
    baseline = np.mean([reward for reward, _, _ in rollouts])
    for datum in batch.datums:
        reward, length, truncated = rollouts[datum.rollout]
        assert not truncated
        assert datum.advantages_T[datum.trained_T] == pytest.approx([reward - baseline] * length)


def test_a_rollout_of_several_sequences_is_truncated_if_its_last_one_is_and_pays_for_all() -> None:
    """The first one was cut off, and the conversation went on."""
    first = Group(
        (sequence(3, 1.0, truncated=True), sequence(5, 1.0), sequence(4, 0.0), sequence(6, 0.0, truncated=True)),
        np.array([0, 0, 1, 1]),
    )
    assert first.truncated_R.tolist() == [False, True]
    assert first.sampled_tokens_R.tolist() == [8, 10]
    masked = build_batch([first], TrainerSettings(truncated_rollouts="mask"))
    assert [(datum.rollout, len(datum.input_T)) for datum in masked.datums] == [(0, 4), (0, 6)]
    assert masked.left_out["truncated_masked"] == 1


def test_the_truncated_fraction_is_of_the_whole_batch() -> None:
    """Whatever the policy is, and also of groups that are not trained."""
    equal = group((0.0, 4, True), (0.0, 8, True))
    for policy in TRUNCATION:
        metrics = batch_metrics(build_batch([MIXED, equal], TrainerSettings(truncated_rollouts=policy)), 0)
        assert metrics["batch/truncated"] == pytest.approx(4 / 6)
        assert metrics["reward/mean"] == pytest.approx(1.5 / 6)  # the environment's own


def test_advantages_of_the_environments_own_are_not_shaped() -> None:
    given_T = np.array([0.0, 0.0, 3.0, 3.0])
    own = replace(sequence(2, 0.0, truncated=True), advantages_T=given_T)
    (datum,) = build_batch([Group((own,), np.array([0]))], TrainerSettings(truncated_rollouts="zero")).datums
    assert datum.advantages_T.tolist() == [0.0, 3.0, 3.0]


ROOT2, ROOT3 = np.sqrt(2), np.sqrt(3)


@pytest.mark.parametrize(
    ("strategy", "scores", "expected"),
    [
        ("group_centered", [1.0, 0.0], [0.5, -0.5]),
        ("group_centered", [3.0, 0.0, 0.0], [2.0, -1.0, -1.0]),
        ("group_centered", [-1.0, 1.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0]),
        ("leave_one_out", [1.0, 0.0], [1.0, -1.0]),
        ("leave_one_out", [3.0, 0.0, 0.0], [3.0, -1.5, -1.5]),
        ("leave_one_out", [4.0, 1.0, 1.0, 2.0], [4 - 4 / 3, 1 - 7 / 3, 1 - 7 / 3, 2 - 2]),
        ("group_normalized", [1.0, 0.0], [1.0, -1.0]),
        ("group_normalized", [3.0, 0.0, 0.0], [ROOT2, -ROOT2 / 2, -ROOT2 / 2]),  # deviation sqrt((4 + 1 + 1) / 3)
        ("group_normalized", [1.0, 2.0, 3.0], [-ROOT3 / ROOT2, 0.0, ROOT3 / ROOT2]),  # deviation sqrt(2 / 3)
    ],
)
def test_a_rollout_is_compared_with_its_group(strategy: str, scores: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(advantages(np.array(scores), ADVANTAGES[strategy]), expected, atol=1e-12)


@pytest.mark.parametrize("strategy", ADVANTAGES)
@pytest.mark.parametrize("scores", [[0.7], [0.1, 0.1, 0.1], [1.0] * 8, [0.3] * 7])
def test_equal_scores_and_a_group_of_one_have_exactly_no_advantage(strategy: str, scores: list[float]) -> None:
    assert advantages(np.array(scores), ADVANTAGES[strategy]).tolist() == [0.0] * len(scores)


@pytest.mark.parametrize("strategy", ADVANTAGES)
@given(scores=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=16))
def test_advantages_are_finite_and_sum_to_zero(strategy: str, scores: list[float]) -> None:
    found = advantages(np.array(scores), ADVANTAGES[strategy])
    assert np.isfinite(found).all()
    assert abs(found.sum()) <= 1e-6 * (1 + np.abs(found).sum())


def test_every_name_the_config_allows_has_a_strategy() -> None:
    assert set(ADVANTAGES) == set(TrainerSettings.model_fields["advantage"].annotation.__args__)
