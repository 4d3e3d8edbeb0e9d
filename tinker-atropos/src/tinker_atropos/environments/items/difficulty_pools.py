"""Which items of the order are trained, by what their last group said: those that teach nothing now come less often.
Pure.

A group whose rewards are all equal has no gradient: its item is always right, or always wrong. What is learned from an
item grows with the variance of its rewards, which is 0 there (Bae et al., "Online Difficulty Filtering for Reasoning
Oriented Reinforcement Learning", arXiv:2504.03380). Such items are set aside, not given up: in each epoch a share of
them is trained all the same, and one whose rewards differ again is back among the others.
"""

import base64
import random
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from tinker_atropos.errors import ConfigError

Item = TypeVar("Item")

DRAWN_SHARE: Final = 0.25
"""Of the items that are set aside, in each epoch. So none waits for more than a few epochs."""

MOST_ITEMS: Final = 2_880
"""The state has a bit for each item, and room for so many: it is kept with checkpoints, in 512 characters."""


class DifficultyPools(Generic[Item]):
    """Raises ConfigError if there are too many items."""

    def __init__(self, items: Sequence[Item], seed: int) -> None:
        if len(items) > MOST_ITEMS:
            raise ConfigError(
                f"env.difficulty_pools is true, and the environment has {len(items)} items to train on: with more than "
                f"{MOST_ITEMS} what is known of each has no room beside a checkpoint; leave it false, or train on fewer"
            )
        self._index = {id(item): index for index, item in reversed(list(enumerate(items)))}
        self._seed = seed
        self._aside: set[int] = set()

    def sets_aside(self, epoch: int, index: int) -> bool:
        """Whether the item of this index is left out of this epoch."""
        if index not in self._aside:
            return False
        return random.Random(f"{self._seed}/{epoch}/{index}").random() >= DRAWN_SHARE  # noqa: S311 -- an order

    def rewarded(self, item: Item, rewards: Sequence[float]) -> None:
        """A group of this item is whole. Items of an environment's own making are in no pool."""
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

    def to_state(self) -> str:
        """Which items are set aside."""
        bits = sum(1 << index for index in self._aside)
        packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return base64.b64encode(packed).decode()

    def restore(self, state: str) -> None:
        """There may be fewer items since. Raises ValueError for something else."""
        packed = state.rpartition(".")[2]  # an older state has a position in front
        bits = int.from_bytes(base64.b64decode(packed, validate=True), "little")
        self._aside = {index for index in self._index.values() if bits >> index & 1}
