import numpy as np
import orjson
import pytest

from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, Story
from tinker_atropos.trainer.trajectories.deliveries import read_delivery, read_group

PAIR = {
    "tokens": [[5, 6, 7, 8], [5, 6]],
    "masks": [[-100, -100, 7, 8], [-100, 6]],
    "scores": [1.0, 0.0],
}


def group(**fields) -> Group:
    return read_group({**PAIR, **fields})


def test_masks_mark_generated_tokens_and_a_positive_logprob_means_unknown() -> None:
    first, second = group(inference_logprobs=[[1.0, 1.0, -0.5, 1.0], [1.0, -2.0]]).sequences_S
    assert first.generated_T.tolist() == [False, False, True, True]
    np.testing.assert_array_equal(first.logprobs_T, [np.nan, np.nan, -0.5, np.nan])
    np.testing.assert_array_equal(second.logprobs_T, [np.nan, -2.0])
    assert first.policy_step_T.tolist() == [UNKNOWN_STEP] * 4


def test_optional_fields_are_unknown_or_absent() -> None:
    first = group().sequences_S[0]
    assert np.isnan(first.logprobs_T).all()
    assert (first.advantages_T, first.teacher_logprobs_T, first.muted) == (None, None, False)
    assert group().scores_R.tolist() == [1.0, 0.0]
    assert group().rollout_of_S.tolist() == [0, 1]


def test_a_rollout_of_several_sequences_counts_once() -> None:
    three = group(
        tokens=[[1, 2], [1, 3], [1, 4]],
        masks=[[-100, 2], [-100, 3], [-100, 4]],
        scores=[0.1, 1.0, 0.1],
        group_overrides={"group_size": 3, "rollouts": [4, 2, 4]},
    )
    assert three.rollout_of_S.tolist() == [0, 1, 0]
    assert three.scores_R.tolist() == [0.1, 1.0]
    assert three.rollout_count == 2


def test_an_override_mutes_a_sequence_and_unknown_ones_are_named() -> None:
    overridden = group(overrides=[{"set_advantage_to_zero": True, "weight": 2}, {"set_advantage_to_zero": False}])
    assert [sequence.muted for sequence in overridden.sequences_S] == [True, False]
    assert overridden.unknown_overrides == ("weight",)


def test_the_teachers_logprob_is_of_the_sampled_token_or_missing() -> None:
    taught = group(
        distill_token_ids=[[[0], [0], [7], [9]], [[5], [6]]],
        distill_logprobs=[[[0.0], [0.0], [-0.25], [-0.5]], [[-3.0], [-1.0]]],
    )
    first, second = taught.sequences_S
    np.testing.assert_array_equal(first.teacher_logprobs_T, [np.nan, np.nan, -0.25, np.nan])
    np.testing.assert_array_equal(second.teacher_logprobs_T, [-3.0, -1.0])


def test_the_likeliest_tokens_of_a_teacher_have_its_probabilities_divided_by_their_sum() -> None:
    half, quarter = float(np.log(0.5)), float(np.log(0.25))
    taught = group(
        distill_token_ids=[[[], [], [8, 7], [9]], [[], [6, 5, 4]]],
        distill_logprobs=[[[], [], [half, quarter], [-3.0]], [[], [quarter, quarter, half]]],
    )
    first, second = taught.sequences_S
    assert first.teacher_logprobs_T is None
    assert first.teacher_topk.tokens_TK.tolist() == [[0, 0, 0], [0, 0, 0], [8, 7, 0], [9, 0, 0]]
    np.testing.assert_allclose(
        first.teacher_topk.shares_TK, [[0, 0, 0], [0, 0, 0], [2 / 3, 1 / 3, 0], [1, 0, 0]], rtol=1e-12
    )
    assert first.teacher_topk.spoken_T.tolist() == [False, False, True, True]
    np.testing.assert_allclose(second.teacher_topk.shares_TK, [[0, 0, 0], [0.25, 0.25, 0.5]], rtol=1e-12)


def test_a_teacher_that_scores_the_sampled_tokens_may_say_nothing_of_prompts() -> None:
    taught = group(
        distill_token_ids=[[[], [], [7], [9]], [[], [6]]],
        distill_logprobs=[[[], [], [-0.25], [-0.5]], [[], [-1.0]]],
    )
    first, second = taught.sequences_S
    np.testing.assert_array_equal(first.teacher_logprobs_T, [np.nan, np.nan, -0.25, np.nan])
    np.testing.assert_array_equal(second.teacher_logprobs_T, [np.nan, -1.0])
    assert first.teacher_topk is None


def test_advantages_per_token_are_taken_as_sent() -> None:
    first, second = group(advantages=[[0.0, 0.0, 1.5, -2.0], [0.0, 0.5]]).sequences_S
    assert first.advantages_T.tolist() == [0.0, 0.0, 1.5, -2.0]
    assert second.advantages_T.tolist() == [0.0, 0.5]


@pytest.mark.parametrize("nothing", [None, [], [[], []]])
def test_optional_lists_without_an_entry_count_as_absent(nothing: list | None) -> None:
    empty = group(inference_logprobs=nothing, advantages=nothing, distill_token_ids=nothing, distill_logprobs=nothing)
    first = empty.sequences_S[0]
    assert np.isnan(first.logprobs_T).all()
    assert (first.advantages_T, first.teacher_logprobs_T) == (None, None)


def answer(*groups: dict, ids: tuple[int, ...] = (7, 9)) -> bytes:
    return b"\n".join(map(orjson.dumps, [{"ids": ids, "received_at": (1.5, 2.5), "step": 3}, *groups]))


def test_a_delivery_keeps_its_groups_in_order_with_their_ids() -> None:
    delivery = read_delivery(answer(PAIR, {**PAIR, "scores": [0.0, 2.0]}), waited=1.5)
    assert (delivery.ids, delivery.waited) == ((7, 9), 1.5)
    assert [one.scores_R.tolist() for one in delivery.groups] == [[1.0, 0.0], [0.0, 2.0]]
    assert [one.received_at for one in delivery.groups] == [1.5, 2.5]
    assert read_delivery(b'{"batch": null}', waited=1.5) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (answer(PAIR), "ids names 2 groups, received_at 2, there are 1"),
        (answer(PAIR, {**PAIR, "scores": []}), "scores has 0 entries for 2 sequences"),
        (answer(PAIR, {**PAIR, "masks": [[1, 2], [3]]}), "a row of masks has 2 positions for 4 tokens"),
        (answer(PAIR, {**PAIR, "inference_logprobs": [[0.5], []]}), "a row of inference_logprobs has 1"),
        (answer(PAIR, {"tokens": [[1]]}), "KeyError: 'masks'"),
        (b"[]", "AttributeError"),
        (b"<html>", "unexpected"),
    ],
)
def test_an_unexpected_answer_names_what_does_not_fit(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_delivery(content, waited=0.0)


def test_what_a_group_says_besides_is_kept_for_people() -> None:
    group = {"tokens": [[1, 2]], "masks": [[-100, 2]], "scores": [1.0]}
    assert read_group(group).story == Story()
    overrides = {"item": [1], "components": [{"a": 1.0}], "environment": 3}
    told = {"group_overrides": overrides, "messages": [["hello"]], "env_id": 1}
    assert read_group(group | told).story == Story([1], [{"a": 1.0}], [["hello"]], 3)
