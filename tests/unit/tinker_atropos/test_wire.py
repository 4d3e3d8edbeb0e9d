import pytest
from pydantic import ValidationError

from tinker_atropos.wire import Group

GROUP = {"tokens": [[1, 2], [3, 4, 5]], "masks": [[-100, 2], [-100, 4, 5]], "scores": [0, 1.5]}


def test_a_group_with_only_what_is_needed() -> None:
    group = Group.model_validate(GROUP)
    assert (group.size, group.scores, group.inference_logprobs, group.env_id) == (2, [0.0, 1.5], None, None)


def test_optional_lists_are_taken_as_sent_also_in_another_shape() -> None:
    group = Group.model_validate(GROUP | {"inference_logprobs": [], "messages": "free", "images": {"a": 1}})
    assert (group.inference_logprobs, group.messages, group.images) == ([], "free", {"a": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": []}, "at least 1 item"),
        ({"tokens": [[1, 2], []]}, r"tokens\[1\] is empty"),
        ({"tokens": [[-1, 2], [3, 4, 5]]}, "greater than or equal to 0"),
        ({"masks": [[-100, 2]]}, "masks has 1 entries for 2 sequences"),
        ({"masks": [[-100, 2], [4, 5]]}, r"masks\[1\] has 2 positions, tokens\[1\] has 3"),
        ({"scores": [1.0, 2.0, 3.0]}, "scores has 3 entries for 2 sequences"),
        ({"scores": [float("inf"), 0]}, "finite number"),
        ({"inference_logprobs": [[float("nan")]]}, "finite number"),
    ],
)
def test_what_makes_a_group_untrainable(changes, message) -> None:
    with pytest.raises(ValidationError, match=message):
        Group.model_validate(GROUP | changes)


def test_a_group_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Group.model_validate(GROUP).scores = []  # type: ignore[misc]
