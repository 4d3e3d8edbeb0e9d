from typing import Any

import pytest

from tinker_atropos.environments.runner.atropos_patches import EqualGroups
from tinker_atropos.environments.runner.reporting.counters import Counters, has_full_reward

REWARDS: dict[str, list[Any]] = {
    "R": [1.0, 1.0],
    "2": [1.0, 2.0],
    "W": [0.0, 0.0],
    "h": [0.5, 0.5],
    "M": [0.0, 1.0],
    "n": [None, None],
}


@pytest.mark.parametrize(
    ("limit", "groups", "sent", "all_right"),
    [
        (2, "RRRRRRR", "--RRRRR", 5),
        (2, "RRMRRRMRR", "--M--RM--", 1),
        (2, "RWRWWRWR", "-----R-R", 2),
        (0, "RRMW", "RRM-", 2),
        (None, "RRRRRRRM", "-------M", 0),
        (0, "WhW", "---", 0),
        (1, "RR2RR", "-R2-R", 2),
        (0, "n", "-", 0),
    ],
    ids=[
        "in a row",
        "a mixed one ends it",
        "all wrong ones do not",
        "none",
        "any number",
        "wrong",
        "unequal",
        "no numbers",
    ],
)
def test_only_so_many_groups_in_a_row_that_are_all_right_are_dropped(limit, groups, sent, all_right):
    counters = Counters()
    equal_groups = EqualGroups(limit, counters)
    fates = ["-" if equal_groups.drops(REWARDS[each], has_full_reward) else each for each in groups]
    assert ("".join(fates), counters.kept_all_right) == (sent, all_right)


def test_a_group_without_rewards_is_for_the_trajectory_api_to_refuse() -> None:
    assert not EqualGroups(4, Counters()).drops([], has_full_reward)


def test_what_is_right_the_environment_says() -> None:
    equal_groups = EqualGroups(0, Counters())
    assert not equal_groups.drops([0.5, 0.5], lambda reward: reward >= 0.5)
