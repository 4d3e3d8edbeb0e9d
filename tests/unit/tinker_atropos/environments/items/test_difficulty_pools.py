"""Which items are set aside: a floor for all, fewer draws for what teaches nothing, and the same after a restart."""

import base64
from collections import Counter

import pytest
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.items.difficulty_pools import DRAWN_SHARE, MOST_ITEMS, DifficultyPools
from tinker_atropos.environments.items.item_order import LeftOut
from tinker_atropos.errors import ConfigError
from tinker_atropos.trajectory_api.messages.requests import MAX_STATE

MIXED, RIGHT, WRONG = [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]


def trained(pools: DifficultyPools[int], size: int, epochs: int) -> list[int]:
    return [index for epoch in range(epochs) for index in range(size) if not pools.sets_aside(epoch, index)]


@pytest.mark.parametrize("rewards", [RIGHT, WRONG, [0.5, 0.5]], ids=["right", "wrong", "equal"])
def test_what_teaches_nothing_is_drawn_less_often_and_never_forgotten(rewards) -> None:
    pools = DifficultyPools(range(100), seed=0)
    for index in range(50):
        pools.rewarded(index, rewards)
    counts = Counter(trained(pools, 100, epochs=100))
    others, aside = [counts[index] for index in range(50, 100)], [counts[index] for index in range(50)]
    assert min(others) == max(others) == 100
    assert min(aside) > 0
    assert sum(aside) / sum(others) == pytest.approx(DRAWN_SHARE, abs=0.03)


def test_an_item_whose_rewards_differ_again_is_back() -> None:
    pools = DifficultyPools(range(4), seed=0)
    pools.rewarded(2, RIGHT)
    assert pools.aside == 1
    pools.rewarded(2, MIXED)
    assert pools.aside == 0


def test_if_all_are_set_aside_they_still_come() -> None:
    pools = DifficultyPools(range(3), seed=0)
    for index in range(3):
        pools.rewarded(index, RIGHT)
    assert set(trained(pools, 3, epochs=50)) == {0, 1, 2}


def test_the_state_has_room_beside_a_checkpoint() -> None:
    items = list(range(MOST_ITEMS))
    pools = DifficultyPools(items, seed=0)
    for item in items:
        pools.rewarded(item, WRONG)
    assert len(base64.b64decode(pools.to_state())) * 8 == MOST_ITEMS
    assert len(pools.to_state()) <= MAX_STATE


def test_a_state_of_more_items_and_a_text_that_is_none() -> None:
    larger, smaller = DifficultyPools(range(50), seed=0), DifficultyPools(range(10), seed=0)
    larger.rewarded(3, RIGHT)
    larger.rewarded(40, RIGHT)
    for state in (larger.to_state(), f"7.45.{larger.to_state()}"):  # the older form has a position in front
        smaller.restore(state)
        assert smaller.aside == 1
    with pytest.raises(ValueError):  # noqa: PT011 -- whatever it says
        smaller.restore('{"level": 1}')


def test_too_many_items_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.difficulty_pools is true, and the environment has 2881 items"):
        DifficultyPools(range(MOST_ITEMS + 1), 0)


class Pooled(Capitals):
    def training_items(self):
        return ["a", "b"]


async def test_an_environment_leaves_out_what_is_set_aside_and_keeps_it() -> None:
    assert alone(Pooled).saved_state() is None
    env = alone(Pooled, difficulty_pools=True)
    env.answers = ("A", "A", "A", "A")
    await env.setup()
    await env.collect_trajectories("a")
    again = alone(Pooled, difficulty_pools=True)
    again.restore_state(env.saved_state())
    items = [await env.item_at(position) for position in range(40)]
    assert items == [await again.item_at(position) for position in range(40)]
    assert (items.count("b"), items.count("a") + items.count(LeftOut("set_aside"))) == (20, 20)
    assert 0 < items.count("a") < 10
