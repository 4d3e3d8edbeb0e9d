"""Which item comes next, by what its last group said: items that teach nothing now are drawn less often. Pure.

A group whose rewards are all equal has no gradient: its item is always right, or always wrong. What is learned from an
item grows with the variance of its rewards, which is 0 there (Bae et al., "Online Difficulty Filtering for Reasoning
Oriented Reinforcement Learning", arXiv:2504.03380). Such items are set aside, not given up: in each pass over all items
a share of them is drawn all the same, and one whose rewards differ again is back among the others.
"""

import base64
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

from tinker_atropos.errors import ConfigError

Item = TypeVar("Item")

DRAWN_SHARE: Final = 0.25
"""Of the items that are set aside, in each pass over all items. So none waits for more than a few passes."""

MOST_ITEMS: Final = 2_880
"""The state has a bit for each item, and room for so many: it is kept with checkpoints, in 512 characters."""


class DifficultyPools(Generic[Item]):
    """Draws items, forever. What comes next follows from `to_state`, and from nothing else. Raises ConfigError if there
    are too many.
    """

    def __init__(self, items: Sequence[Item], seed: int) -> None:
        if len(items) > MOST_ITEMS:
            raise ConfigError(
                f"env.difficulty_pools is true, and the environment has {len(items)} items to train on: with more than "
                f"{MOST_ITEMS} what is known of each has no room beside a checkpoint; leave it false, or train on fewer"
            )
        self._items = list(items)
        self._index = {id(item): index for index, item in reversed(list(enumerate(self._items)))}
        self._seed = seed
        self._pass = 0
        self._position = 0
        self._aside: set[int] = set()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        while True:
            if self._position == len(self._items):
                self._pass, self._position = self._pass + 1, 0
            index = _order(len(self._items), self._seed, self._pass)[self._position]
            self._position += 1
            if index not in self._aside or self._chance(index) < DRAWN_SHARE:
                return self._items[index]

    def rewarded(self, item: Item, rewards: Sequence[float]) -> None:
        """A group of this item is whole. Items that are not drawn here, such as one of an environment's own making, are
        in no pool.
        """
        index = self._index.get(id(item))
        if index is None:
            return
        if len(set(rewards)) > 1:
            self._aside.discard(index)
        else:
            self._aside.add(index)

    @property
    def aside(self) -> int:
        return len(self._aside)

    def _chance(self, index: int) -> float:
        return random.Random(f"{self._seed}/{self._pass}/{index}").random()  # noqa: S311 -- an order

    def to_state(self) -> str:
        """The pass, the position in it, and which items are set aside."""
        bits = sum(1 << index for index in self._aside)
        packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return f"{self._pass}.{self._position}.{base64.b64encode(packed).decode()}"

    def restore(self, state: str) -> None:
        """There may be fewer items since. Raises ValueError for something else."""
        number, position, packed = state.split(".")
        bits = int.from_bytes(base64.b64decode(packed, validate=True), "little")
        self._pass, self._position = int(number), min(int(position), len(self._items))
        self._aside = {index for index in range(len(self._items)) if bits >> index & 1}


@lru_cache(maxsize=4)
def _order(size: int, seed: int, number: int) -> tuple[int, ...]:
    order = list(range(size))
    random.Random(f"{seed}/{number}").shuffle(order)  # noqa: S311 -- an order
    return tuple(order)
