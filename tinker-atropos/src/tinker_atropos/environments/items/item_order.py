"""The one order of a run's items: which item is at a position. Pure: any process can look up any position.

Positions count from 0 across epochs. An epoch has each item once, in an order of its own. Several kinds of items, such
as the tasks of a mixture, come by their shares.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

LeftOutReason = Literal["set_aside", "held_out", "not_drawn"]
"""`not_drawn`: an environment that draws its items itself is past it."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """In the place of an item: why the one at a position is not trained."""

    reason: LeftOutReason


@dataclass(frozen=True, slots=True)
class Place:
    """Where a position is: `index` among the items of a `kind`, both counted from 0."""

    epoch: int
    kind: int
    index: int


@dataclass(frozen=True, slots=True)
class ItemOrder:
    """The order of `size` items of each kind. Of every sum(shares) positions, shares[kind] are of that kind."""

    seed: int
    size: int
    shares: tuple[int, ...] = (1,)

    @property
    def epoch_size(self) -> int:
        """Positions until a kind begins again. Kinds of a smaller share begin again then, too."""
        return sum(self.shares) * max(1, self.size // max(self.shares))

    def at(self, position: int) -> Place:
        epoch, place = divmod(position, self.epoch_size)
        block, offset = divmod(place, sum(self.shares))
        kinds = _block(self.shares, f"{self.seed}/{epoch}/{block}")
        kind = kinds[offset]
        earlier = block * self.shares[kind] + kinds[:offset].count(kind)
        return Place(epoch, kind, permuted(earlier % self.size, self.size, f"{self.seed}/{epoch}/{kind}"))


@lru_cache(maxsize=64)
def _block(shares: tuple[int, ...], key: str) -> tuple[int, ...]:
    """The kinds of a block's positions."""
    kinds = [kind for kind, share in enumerate(shares) for _ in range(share)]
    random.Random(key).shuffle(kinds)  # noqa: S311 -- an order
    return tuple(kinds)


PARTS: Final = 2520
"""Of the whole: a multiple of 1 to 10, so that usual weights are exact."""


def shares_of(weights: Sequence[float]) -> tuple[int, ...]:
    """The smallest integers in the proportion of the weights, which are above 0. Each is at least 1."""
    shares = [max(1, round(PARTS * weight / sum(weights))) for weight in weights]
    return tuple(share // math.gcd(*shares) for share in shares)


ROUNDS: Final = 6


def permuted(place: int, size: int, key: str) -> int:
    """The index at a place of a permutation of range(size), which follows from the key. It takes no memory.

    A Feistel network over pairs below `side`, the smallest square that has room for all, is a permutation of it. What
    leads beyond `size` is followed until it is back (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
    """
    side = math.isqrt(size - 1) + 1
    while True:
        left, right = divmod(place, side)
        for number in range(ROUNDS):
            left, right = right, (left + _hashed(f"{key}/{number}/{right}")) % side
        place = left * side + right
        if place < size:
            return place


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
