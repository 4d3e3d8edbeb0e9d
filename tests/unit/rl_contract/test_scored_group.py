import pytest
from pydantic import ValidationError

from rl_contract.scored_group import ScoredGroup

GROUP = {"tokens": [[1, 2], [3, 4, 5]], "masks": [[-100, 2], [-100, 4, 5]], "scores": [0, 1.5]}


def test_a_group_with_only_the_required_fields() -> None:
    group = ScoredGroup.model_validate(GROUP)
    assert (group.size, group.scores, group.inference_logprobs, group.env_id) == (2, [0.0, 1.5], None, None)


def test_fields_irrelevant_to_training_are_taken_as_sent() -> None:
    group = ScoredGroup.model_validate(GROUP | {"messages": "free", "images": {"a": 1}, "ref_logprobs": [[1.0]]})
    assert (group.messages, group.images, group.ref_logprobs) == ("free", {"a": 1}, [[1.0]])


@pytest.mark.parametrize("name", ["inference_logprobs", "advantages", "distill_token_ids", "distill_logprobs"])
@pytest.mark.parametrize("empty", [None, [], [[], []]])
def test_lists_without_an_entry_are_absent(name, empty) -> None:
    assert getattr(ScoredGroup.model_validate(GROUP | {name: empty}), name) is None


def test_lists_of_the_shape_of_tokens() -> None:
    lists = {
        "inference_logprobs": [[1.0, -0.5], [1.0, -0.5, -0.25]],
        "advantages": [[0, 1], [0, 1, 2]],
        "overrides": [{}, {"set_advantage_to_zero": True}],
        "distill_token_ids": [[[5], [6]], [[7], [8], [9]]],
        "distill_logprobs": [[[-1], [-2]], [[-3], [-4], [-5]]],
    }
    group = ScoredGroup.model_validate(GROUP | lists)
    assert {name: getattr(group, name) for name in lists} == lists


@pytest.mark.parametrize(
    "masks",
    [
        [[-100, -100], [-100, 4, 5]],
        [[-100, 1], [-100, 1, 1]],  # as in atroposlib's own tests
        [[-100, 2], [3, -100, 5]],  # two turns
        [[1, 1], [1, 1, 1]],
    ],
)
def test_masks_that_atropos_environments_send(masks) -> None:
    assert ScoredGroup.model_validate(GROUP | {"masks": masks}).masks == masks


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"tokens": []}, "tokens", "at least 1 item"),
        ({"tokens": [[1, 2], []]}, "tokens", r"tokens\[1\] is empty"),
        ({"tokens": [[-1, 2], [3, 4, 5]]}, "tokens", "greater than or equal to 0"),
        ({"tokens": [[2**31, 2], [3, 4, 5]]}, "tokens", "less than 2147483648"),
        ({"masks": [[-100, 2]]}, "masks", "masks has 1 entries for 2 sequences"),
        ({"masks": [[-100, 2], [4, 5]]}, "masks", r"masks\[1\] has 2 positions, tokens\[1\] has 3"),
        (
            {"masks": [[-100, 2], [0, 4, 5]]},
            "masks",
            r"masks\[1\]\[0\] is 0; allowed are -100 \(not trained\) and the token, 3",
        ),
        ({"scores": [1.0, 2.0, 3.0]}, "scores", "scores has 3 entries for 2 sequences"),
        ({"scores": [float("inf"), 0]}, "scores", "finite number"),
        ({"inference_logprobs": [[float("nan")]]}, "inference_logprobs", "finite number"),
        ({"inference_logprobs": [[1.0, -1.0]]}, "inference_logprobs", "has 1 entries for 2 sequences"),
        ({"inference_logprobs": [[1.0, -1.0], []]}, "inference_logprobs", r"\[1\] has 0 positions, tokens\[1\] has 3"),
        ({"advantages": [[1.0], [1.0, 2.0, 3.0]]}, "advantages", r"advantages\[0\] has 1 positions"),
        ({"overrides": [{"set_advantage_to_zero": True}]}, "overrides", "overrides has 1 entries for 2 sequences"),
        ({"distill_token_ids": [[[1], [2]], [[3], [4], [5]]]}, "distill_logprobs", "distill_logprobs is missing"),
        ({"distill_logprobs": [[[1], [2]], [[3], [4], [5]]]}, "distill_token_ids", "distill_token_ids is missing"),
        (
            {
                "distill_token_ids": [[[], [2]], [[3], [4, 9], [5]]],
                "distill_logprobs": [[[], [2]], [[3], [4], [5]]],
            },
            "distill_logprobs",
            r"distill_logprobs\[1\]\[1\] has 1 candidates \(K\), not 2",
        ),
        (
            {
                "distill_token_ids": [[[], [2]], [[3], [4, 9], [5]]],
                "distill_logprobs": [[[], [2]], [[3], [4, float("inf")], [5]]],
            },
            "distill_logprobs",
            "finite number",
        ),
        (
            {
                "distill_token_ids": [[[], [2]], [[3], [4]]],
                "distill_logprobs": [[[], [2]], [[3], [4]]],
            },
            "distill_token_ids",
            r"distill_token_ids\[1\] has 2 positions, tokens\[1\] has 3",
        ),
        (
            {
                "distill_token_ids": [[[], [2]], [[], [], list(range(129))]],
                "distill_logprobs": [[[], [2]], [[], [], [-9.0] * 129]],
            },
            "distill_token_ids",
            r"distill_token_ids\[1\]\[2\] has 129 candidates \(K\); 128 at most",
        ),
        ({"group_overrides": {"rollouts": [0]}}, "group_overrides", "rollouts has 1 entries for 2 sequences"),
        ({"group_overrides": {"rollouts": ["a", "b"]}}, "group_overrides", "must be a list of integers"),
        ({"group_overrides": {"rollouts": [True, False]}}, "group_overrides", "must be a list of integers"),
        ({"group_overrides": {"rollouts": 2}}, "group_overrides", "must be a list of integers"),
        (
            {"group_overrides": {"rollouts": [0, 0]}},
            "scores",
            r"scores\[1\] is 1.5, another sequence of rollout 0 has 0.0",
        ),
    ],
)
def test_untrainable_groups(changes, field, message) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        ScoredGroup.model_validate(GROUP | changes)
    (error,) = caught.value.errors()
    assert (error["loc"][0] if error["loc"] else error["type"]) == field


@pytest.mark.parametrize(
    ("overrides", "rollout_of_S", "count"),
    [
        (None, (0, 1, 2), 3),
        ({"group_size": 3}, (0, 1, 2), 3),
        ({"group_size": 3, "rollouts": [0, 0, 1]}, (0, 0, 1), 2),
        ({"rollouts": [7, 3, 7]}, (0, 1, 0), 2),
    ],
)
def test_rollouts_of_several_sequences(overrides, rollout_of_S, count) -> None:
    group = ScoredGroup(tokens=[[1]] * 3, masks=[[1]] * 3, scores=[1, 1, 1], group_overrides=overrides)
    assert (group.rollout_of_S, group.rollout_count, group.size) == (rollout_of_S, count, 3)


def test_tokens_unknown_to_the_model() -> None:
    group = ScoredGroup.model_validate(GROUP)
    assert (group.largest_token, group.outside_vocabulary(6)) == (5, None)
    assert group.outside_vocabulary(4) == "tokens[1][1] is 4; the model knows the ids 0 to 3"


def test_a_teacher_says_something_of_some_positions_and_knows_no_other_tokens() -> None:
    named = {"distill_token_ids": [[[], [2, 9, 1]], [[], [], [4, 5]]]}
    group = ScoredGroup.model_validate(
        GROUP | named | {"distill_logprobs": [[[], [-1, -2, -3]], [[], [], [-0.5, -1.5]]]}
    )
    assert (group.largest_token, group.outside_vocabulary(10)) == (9, None)
    assert group.outside_vocabulary(9) == (
        "distill_token_ids[0][1] names 9; the model knows the ids 0 to 8: a teacher needs the policy's tokenizer"
    )


def test_a_group_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        ScoredGroup.model_validate(GROUP).scores = []  # type: ignore[misc]
