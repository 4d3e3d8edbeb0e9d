"""The task of the bundled model: sort four digits. `sort 4 1 3 2` is answered `1234`.

The model is pre-trained on one part of the 10,000 prompts, trained by RL on another and evaluated on a third. The
parts are disjoint and never change: they follow from a hash of the prompt, not from a random number generator.
"""

import hashlib
import itertools
from dataclasses import dataclass
from functools import cache

Item = tuple[int, ...]

PRETRAINING_SIZE = 6_000
TRAINING_SIZE = 2_000


@dataclass(frozen=True, slots=True)
class Split:
    """Disjoint parts of all items, each in a fixed shuffled order."""

    pretraining: tuple[Item, ...]
    training: tuple[Item, ...]
    held_out: tuple[Item, ...]


@cache
def split() -> Split:
    items = sorted(itertools.product(range(10), repeat=4), key=_shuffle_key)
    training_end = PRETRAINING_SIZE + TRAINING_SIZE
    return Split(
        pretraining=tuple(items[:PRETRAINING_SIZE]),
        training=tuple(items[PRETRAINING_SIZE:training_end]),
        held_out=tuple(items[training_end:]),
    )


def prompt(item: Item) -> str:
    """The content of the user's message."""
    return "sort " + " ".join(map(str, item))


def answer(item: Item) -> str:
    """The only correct answer, without the end-of-turn token."""
    return "".join(map(str, sorted(item)))


def _shuffle_key(item: Item) -> bytes:
    return hashlib.sha256(prompt(item).encode()).digest()
