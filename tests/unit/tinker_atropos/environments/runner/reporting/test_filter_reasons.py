import pytest

from tinker_atropos.environments.runner.reporting.counters import filter_reason, generated_tokens, rewards

MIXED = {"tokens": [[1, 2], [1, 3]], "masks": [[-100, 2], [-100, 3]], "scores": [1.0, 0.0]}
SEVERAL = {
    "tokens": [[1, 2], [1, 3], [1, 4]],
    "masks": [[-100, 2], [1, 3], [-100, 4]],
    "scores": [1.0, 1.0, 0.0],
    "group_overrides": {"group_size": 3, "rollouts": [0, 0, 1]},
}
GROUPS = {
    "mixed scores": (MIXED, None),
    "equal scores": ({**MIXED, "scores": [1.0, 1.0]}, "equal"),
    "a sequence as long as the limit": ({**MIXED, "tokens": [[1, 2], [1] * 8]}, "too_long"),
    "equal and too long": ({**MIXED, "scores": [0.0, 0.0], "tokens": [[1] * 9, [1] * 9]}, "equal"),
    "three of two": ({**MIXED, "tokens": [[1], [2], [3]]}, "wrong_size"),
    "sequences of two rollouts": (SEVERAL, None),
    "no tokens": ({"scores": [1.0, 0.0]}, "wrong_size"),
    "no group at all": ("oops", "wrong_size"),
}


@pytest.mark.parametrize(("group", "reason"), GROUPS.values(), ids=GROUPS)
def test_reason(group, reason):
    assert filter_reason(group, 2, 8, drops_equal=True) == reason


def test_limits_that_are_off():
    assert filter_reason({**MIXED, "scores": [1.0, 1.0]}, 2, 8, drops_equal=False) is None
    assert filter_reason({**MIXED, "tokens": [[1] * 99, [1] * 99]}, 2, 0, drops_equal=True) is None


@pytest.mark.parametrize(
    ("group", "expected"),
    [(MIXED, [1.0, 0.0]), (SEVERAL, [1.0, 0.0]), ({}, []), (None, []), ({"scores": None}, [])],
)
def test_rewards_are_per_rollout(group, expected):
    assert rewards(group) == expected


@pytest.mark.parametrize(("group", "expected"), [(MIXED, 2), (SEVERAL, 4), ({}, 0), ("oops", 0)])
def test_generated_tokens(group, expected):
    assert generated_tokens(group) == expected
