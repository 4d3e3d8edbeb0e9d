"""Which item comes next: a floor for all, fewer draws for what teaches nothing, and the same after a restart."""

import base64
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.items.difficulty_pools import DRAWN_SHARE, MOST_ITEMS, DifficultyPools
from tinker_atropos.errors import ConfigError
from tinker_atropos.trajectory_api.messages.requests import MAX_STATE

MIXED, RIGHT, WRONG = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]


def drawn(pools: DifficultyPools[int], count: int) -> list[int]:
    return list(islice(pools, count))


def test_while_all_teach_something_each_pass_has_every_item_in_another_order() -> None:
    pools = DifficultyPools(range(20), seed=3)
    first, second = drawn(pools, 20), drawn(pools, 20)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert drawn(DifficultyPools(range(20), seed=4), 20) != first


@pytest.mark.parametrize("rewards", [RIGHT, WRONG, [0.5, 0.5]], ids=["right", "wrong", "equal"])
def test_what_teaches_nothing_is_drawn_less_often_and_never_forgotten(rewards) -> None:
    pools = DifficultyPools(range(100), seed=0)
    for index in range(50):
        pools.rewarded(index, rewards)
    counts = Counter(drawn(pools, 62 * 100))  # a pass is 50 others, and a quarter of these
    others, aside = [counts[index] for index in range(50, 100)], [counts[index] for index in range(50)]
    assert min(others) >= 95
    assert min(aside) > 0
    assert sum(aside) / sum(others) == pytest.approx(DRAWN_SHARE, abs=0.03)


def test_an_item_whose_rewards_differ_again_is_back() -> None:
    pools = DifficultyPools(range(4), seed=0)
    pools.rewarded(2, RIGHT)
    assert pools.aside == 1
    pools.rewarded(2, MIXED)
    assert pools.aside == 0


def test_if_all_are_set_aside_they_are_still_drawn() -> None:
    pools = DifficultyPools(range(3), seed=0)
    for index in range(3):
        pools.rewarded(index, RIGHT)
    assert set(drawn(pools, 200)) == {0, 1, 2}


@given(st.integers(1, 60), st.lists(st.booleans(), max_size=150), st.integers(0, 2**31), st.integers(0, 150))
def test_it_goes_on_where_it_was(size, teaches, seed, kept_after) -> None:
    """Killed after any draw, and started again from its state."""
    whole, parts = DifficultyPools(range(size), seed), DifficultyPools(range(size), seed)
    for number, taught in enumerate(teaches):
        if number == kept_after:
            again = DifficultyPools(range(size), seed)
            again.restore(parts.to_state())
            parts = again
        index = next(whole)
        assert next(parts) == index
        for pools in (whole, parts):
            pools.rewarded(index, MIXED if taught else RIGHT)
    assert parts.to_state() == whole.to_state()


def test_the_state_has_room_beside_a_checkpoint() -> None:
    items = list(range(MOST_ITEMS))
    pools = DifficultyPools(items, seed=0)
    for item in items:
        pools.rewarded(item, WRONG)
    drawn(pools, 3)
    position, bits = pools.to_state().split(".", 1)[1].split(".")
    longest = f"{2**63}.{MOST_ITEMS}.{bits}"
    assert (int(position) <= MOST_ITEMS, len(base64.b64decode(bits)) * 8) == (True, MOST_ITEMS)
    assert len(longest) <= MAX_STATE


def test_a_state_of_more_items_and_a_text_that_is_none() -> None:
    larger, smaller = DifficultyPools(range(50), seed=0), DifficultyPools(range(10), seed=0)
    larger.rewarded(3, RIGHT)
    larger.rewarded(40, RIGHT)
    drawn(larger, 45)
    smaller.restore(larger.to_state())
    assert smaller.aside == 1
    assert set(drawn(smaller, 100)) == set(range(10))
    with pytest.raises(ValueError):  # noqa: PT011 -- whatever it says
        smaller.restore('{"level": 1}')


def test_too_many_items_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.difficulty_pools is true, and the environment has 2881 items"):
        DifficultyPools(range(MOST_ITEMS + 1), 0)


class Pooled(Capitals):
    def training_items(self):
        return ["a", "b"]


async def test_an_environment_draws_from_its_pools_and_keeps_them() -> None:
    assert alone(Pooled).saved_state() is None
    env = alone(Pooled, difficulty_pools=True)
    env.answers = ("A", "A", "A", "A")
    await env.setup()
    item = await env.get_next_item()
    await env.collect_trajectories(item)
    state = env.saved_state()
    again = alone(Pooled, difficulty_pools=True)
    again.restore_state(state)
    assert again.saved_state() == state
    assert [await again.get_next_item() for _ in range(20)] == [await env.get_next_item() for _ in range(20)]
    assert env._pools.aside == 1
