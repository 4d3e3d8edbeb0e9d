"""One order: each item once in an epoch, kinds by their shares, and a position is looked up without the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.items.item_order import ItemOrder, LeftOut, Place, permuted, shares_of
from tinker_atropos.errors import ConfigError

SHARES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(st.integers(1, 300), st.text(max_size=5))
def test_a_permutation_has_each_index_once(size, key) -> None:
    assert sorted(permuted(place, size, key) for place in range(size)) == list(range(size))


@given(st.integers(0, 2**31), st.integers(4, 40), SHARES, st.integers(0, 3))
def test_an_epoch_has_no_item_twice_and_each_kind_by_its_share(seed, size, shares, epoch) -> None:
    order = ItemOrder(seed, size, shares)
    places = [order.at(epoch * order.epoch_size + place) for place in range(order.epoch_size)]
    assert len(set(places)) == len(places)
    assert {each.epoch for each in places} == {epoch}
    whole = sum(shares)
    for first in range(0, len(places), whole):
        kinds = [each.kind for each in places[first : first + whole]]
        assert [kinds.count(kind) for kind in range(len(shares))] == list(shares)


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    def epoch(seed, number):
        return [ItemOrder(seed, 20).at(20 * number + place).index for place in range(20)]

    assert len({tuple(epoch(seed, number)) for seed in (0, 1) for number in (0, 1)}) == 4
    assert ItemOrder(0, 2**31).at(2**40 + 5) == Place(512, 0, ItemOrder(0, 2**31).at(2**40 + 5).index)


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ([2.5], (1,)),
        ([1.0] * 3, (1, 1, 1)),
        ([0.5, 0.3, 0.2], (5, 3, 2)),
        ([1.0] * 11, (1,) * 11),
        ([1e-9, 1], (1, 2520)),
    ],
)
def test_shares_are_in_the_proportion_of_weights(weights, shares) -> None:
    assert shares_of(weights) == shares


class Overlapping(Capitals):
    def training_items(self):
        return ["a", "b", "c"]


async def test_an_environment_looks_a_position_up_and_leaves_out_what_is_held_out() -> None:
    one, other = alone(Overlapping), alone(Overlapping)
    items = [await one.item_at(position) for position in range(30)]
    assert items == [await other.item_at(position) for position in reversed(range(30))][::-1]
    for epoch in range(10):
        assert set(items[3 * epoch : 3 * epoch + 3]) == {"a", "b", LeftOut("held_out")}
    drawn = [await one.get_next_item() for _ in range(20)]
    assert drawn == [each for each in items if isinstance(each, str)]


async def test_if_all_are_held_out_it_says_so() -> None:
    class Memorized(Capitals):
        def held_out_items(self):
            return self.training_items()

    with pytest.raises(
        ConfigError, match="Memorized has given 1,000 items in a row that ask what a held-out item asks"
    ):
        await alone(Memorized).get_next_item()
