"""Loss inputs by hand, and a property: every generated token is trained once, with its own logprob."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import TrainingBatch, build_batch, loss_config
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.trajectories.deliveries import read_group

CENTERED = TrainerSettings()

PAIR = {
    "tokens": [[11, 12, 13, 14], [11, 12, 15]],
    "masks": [[-100, -100, 13, 14], [-100, -100, 15]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, 1.0, -0.3, -0.4], [1.0, 1.0, -0.5]],
}
TEACHER = {
    "distill_token_ids": [[[0], [0], [13], [9]], [[0], [0], [15]]],  # the teacher has no logprob for token 14
    "distill_logprobs": [[[0.0], [0.0], [-0.1], [-7.0]], [[0.0], [0.0], [-1.5]]],
}


def group(**fields) -> Group:
    return read_group({**PAIR, **fields})


def batch_of(*groups: Group, **settings) -> TrainingBatch:
    return build_batch(groups, TrainerSettings(**settings))


def test_a_group_by_hand() -> None:
    batch = batch_of(group())
    first, second = batch.datums
    assert first.input_T.tolist() == [11, 12, 13]
    assert first.target_T.tolist() == [12, 13, 14]
    assert first.logprobs_T.tolist() == [0.0, -0.3, -0.4]
    assert first.advantages_T.tolist() == [0.0, 0.5, 0.5]
    assert first.trained_T.tolist() == [False, True, True]
    assert first.policy_step_T.tolist() == [UNKNOWN_STEP] * 3
    assert second.target_T.tolist() == [12, 15]
    assert second.logprobs_T.tolist() == [0.0, -0.5]
    assert second.advantages_T.tolist() == [0.0, -0.5]
    assert (batch.trained_tokens, batch.trained_rollouts) == (3, 2)
    assert [(datum.group, datum.rollout, datum.score) for datum in batch.datums] == [(0, 0, 1.0), (0, 1, 0.0)]
    assert first.tokens_T.tolist() == [11, 12, 13, 14]


@pytest.mark.parametrize(
    ("case", "settings", "fields", "expected"),
    [
        ("leave one out", {"advantage": "leave_one_out"}, {}, [[0, 1, 1], [0, -1]]),
        ("normalized", {"advantage": "group_normalized"}, {"scores": [3.0, 1.0]}, [[0, 1, 1], [0, -1]]),
        (
            "two turns: only what is masked as generated",
            {},
            {"masks": [[-100, 12, -100, 14], [-100, -100, 15]], "inference_logprobs": None},
            [[0.5, 0, 0.5], [0, -0.5]],
        ),
        (
            "advantages per token instead of scores, shifted like the tokens",
            {},
            {"advantages": [[9.0, 9.0, 0.25, -2.0], [9.0, 9.0, 3.0]]},
            [[0, 0.25, -2.0], [0, 3.0]],
        ),
        ("advantages per token although all scores are equal", {}, {"scores": [1.0, 1.0], "advantages": [
            [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]}, [[0, 1, 1], [0, 0]]),
        (
            "an override: no advantage here, but the score stays in the baseline",
            {},
            {"overrides": [{"set_advantage_to_zero": True}, {}]},
            [[0, 0, 0], [0, -0.5]],
        ),
        ("distillation: A + log p_teacher - log q", {}, TEACHER, [[0, 0.5 + (-0.1 + 0.3), 0.5], [0, -0.5 - 1.5 + 0.5]]),
        (
            "distillation with its coefficient, of equal scores",
            {"distill_coefficient": 2.0},
            {**TEACHER, "scores": [1.0, 1.0]},
            [[0, 2 * 0.2, 0], [0, 2 * -1.0]],
        ),
        (
            "distillation of advantages per token",
            {},
            {**TEACHER, "advantages": [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]},
            [[0, 1.2, 1], [0, 0]],
        ),
    ],
)  # fmt: skip
def test_advantages_of_the_loss_by_hand(case: str, settings: dict, fields: dict, expected: list[list[float]]) -> None:
    for datum, advantages in zip(batch_of(group(**fields), **settings).datums, expected, strict=True):
        np.testing.assert_allclose(datum.advantages_T, advantages, atol=1e-12, err_msg=case)


def test_the_teachers_terms_are_kept_separate_for_the_metrics() -> None:
    first, second = batch_of(group(**TEACHER)).datums
    np.testing.assert_allclose(first.distilled_T, [np.nan, 0.2, np.nan], atol=1e-12)
    np.testing.assert_allclose(second.distilled_T, [np.nan, -1.0], atol=1e-12)
    assert batch_of(group()).datums[0].distilled_T is None


TOP_K = {
    "distill_token_ids": [[[1, 2], [1, 2], [13, 9], [9, 8]], [[], [], [15, 3]]],
    "distill_logprobs": [[[0.0, 0.0], [0.0, 0.0], [-1.0, -1.0], [-2.0, -2.0]], [[], [], [-1.0, -1.0]]],
}


def test_what_a_teacher_would_sample_is_learned_where_something_was_sampled() -> None:
    first, second = batch_of(group(**TOP_K)).datums
    assert first.teacher.tokens_TK.tolist() == [[1, 2], [13, 9], [9, 8]]
    assert first.teacher.shares_TK.tolist() == [[0, 0], [0.5, 0.5], [0.5, 0.5]]
    assert second.teacher.shares_TK.tolist() == [[0, 0], [0.5, 0.5]]
    assert first.advantages_T.tolist() == [0.0, 0.5, 0.5], "the advantages have no term of it"
    assert first.distilled_T is None


def test_a_teacher_is_enough_to_train_a_group_without_advantages() -> None:
    assert len(batch_of(group(**TOP_K, scores=[1.0, 1.0])).datums) == 2
    assert batch_of(group(**TOP_K, scores=[1.0, 1.0]), distill_coefficient=0.0).datums == []
    muted = [{"set_advantage_to_zero": True}, {}]
    first, second = batch_of(group(**TOP_K, scores=[1.0, 1.0], overrides=muted)).datums
    assert (first.teacher is None, second.teacher is None) == (True, False)


def test_what_is_cut_off_by_length_is_not_learned_from_a_teacher_either() -> None:
    taught = group(**TOP_K)
    cut = replace(taught, sequences_S=(taught.sequences_S[0], replace(taught.sequences_S[1], truncated=True)))
    (datum,) = batch_of(cut, truncated_rollouts="mask").datums
    assert datum.rollout == 0


def test_every_sequence_of_a_rollout_gets_the_rollouts_advantage_and_the_baseline_is_over_rollouts() -> None:
    batch = batch_of(
        group(
            tokens=[[1, 2], [1, 3], [1, 4], [1, 5]],
            masks=[[-100, 2], [-100, 3], [-100, 4], [-100, 5]],
            scores=[1.0, 1.0, 1.0, 0.0],
            inference_logprobs=None,
            group_overrides={"group_size": 4, "rollouts": [0, 0, 0, 1]},
        )
    )
    assert [datum.advantages_T.tolist() for datum in batch.datums] == [[0.5], [0.5], [0.5], [-0.5]]
    assert [datum.rollout for datum in batch.datums] == [0, 0, 0, 1]
    assert batch.trained_rollouts == 2


def test_groups_without_an_advantage_are_dropped_and_counted_in_rollouts() -> None:
    batch = batch_of(group(), group(scores=[1.0, 1.0]), group(overrides=[{"set_advantage_to_zero": True}] * 2))
    assert [datum.group for datum in batch.datums] == [0, 0]
    assert batch.left_out == {"no_advantage": 4, "nothing_generated": 0, "truncated_masked": 0}


def test_a_sequence_without_generated_tokens_is_not_trained() -> None:
    batch = batch_of(group(masks=[[-100, -100, 13, 14], [-100, -100, -100]]))
    assert len(batch.datums) == 1
    assert batch.left_out == {"no_advantage": 0, "nothing_generated": 1, "truncated_masked": 0}


def test_only_clipped_losses_get_thresholds() -> None:
    assert loss_config(CENTERED) is None
    assert loss_config(TrainerSettings(loss="dro", dro_beta=0.2)) == {"beta": 0.2}
    for loss in ("ppo", "cispo", "gspo"):
        clips = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}
        assert loss_config(TrainerSettings(loss=loss, **clips)) == clips


@st.composite
def conversations(draw: st.DrawFn) -> tuple[dict[str, list], list[list[float]], Ledger]:
    """A group of several turns with different answers, and the true logprobs. The group or the ledger knows them."""
    turns = iter(range(100, 200))
    ledger, truth, fields = Ledger(), [], {"tokens": [], "masks": [], "scores": [], "inference_logprobs": []}
    for _ in range(draw(st.integers(1, 5))):
        tokens, masks, sent, logprobs = [0], [-100], [1.0], [1.0]
        for _ in range(draw(st.integers(0, 3))):
            output = [next(turns), *draw(st.lists(st.integers(0, 3), max_size=4))]
            sampled = [-draw(st.integers(0, 64)) / 8 for _ in output]
            between = draw(st.lists(st.integers(4, 6), min_size=1, max_size=3))
            recorded = draw(st.booleans())
            if recorded:
                ledger.record(np.array(tokens), np.array(output), np.array(sampled), policy_step=1)
            told = [1.0] * len(output) if recorded and draw(st.booleans()) else sampled
            tokens, masks = tokens + output + between, masks + output + [-100] * len(between)
            sent, logprobs = sent + told + [1.0] * len(between), logprobs + sampled + [1.0] * len(between)
        truth.append(logprobs)
        for name, value in zip(fields, (tokens, masks, draw(st.integers(0, 2)), sent), strict=True):
            fields[name].append(value)
    return fields, truth, ledger


@given(conversations())
def test_every_generated_token_is_trained_once_with_its_own_logprob_and_no_prompt_position_is(drawn) -> None:
    fields, truth, ledger = drawn
    read = read_group(fields)
    attributed = [ledger.attribute(sequence).sequence for sequence in read.sequences_S]
    batch = build_batch([Group(tuple(attributed), read.rollout_of_S)], CENTERED)
    mean = float(np.mean(fields["scores"]))
    rows = list(zip(fields["tokens"], fields["masks"], fields["scores"], truth, strict=True))
    trained = [row for row in rows if any(mark != -100 for mark in row[1])]
    if not any(score != fields["scores"][0] for score in fields["scores"]) or not any(
        score != mean for _, _, score, _ in trained
    ):
        assert batch.datums == []
        return
    for datum, (tokens, masks, score, logprobs) in zip(batch.datums, trained, strict=True):
        generated = [mark != -100 for mark in masks]
        assert datum.tokens_T.tolist() == tokens
        assert datum.trained_T.tolist() == generated[1:]
        assert [value for value, mark in zip(datum.logprobs_T, generated[1:], strict=True) if mark] == [
            value for value, mark in zip(logprobs, generated, strict=True) if mark
        ]
        expected = [score - mean if mark else 0.0 for mark in generated[1:]]
        np.testing.assert_allclose(datum.advantages_T, expected, atol=1e-12)
        assert not datum.logprobs_T[~datum.trained_T].any()
    assert batch.trained_tokens == sum(mark != -100 for _, masks, _, _ in trained for mark in masks)
