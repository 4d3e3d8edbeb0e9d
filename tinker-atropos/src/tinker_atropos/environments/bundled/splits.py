"""How items are parted for training and evaluations. A part never changes: it follows from hashes of the items' texts,
and not from a random number generator.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Split(Generic[Item]):
    """Disjoint parts of all items. The bundled model is pre-trained on `pretraining`."""

    training: tuple[Item, ...]
    held_out: tuple[Item, ...]
    pretraining: tuple[Item, ...] = ()


def in_shuffled_order(
    items: Iterable[Item], text: Callable[[Item], str], pretraining: int, training: int
) -> Split[Item]:
    """So many for pre-training, so many for training; the others are held out."""
    order = sorted(items, key=lambda item: _digest(text(item)))
    end = pretraining + training
    return Split(tuple(order[pretraining:end]), tuple(order[end:]), tuple(order[:pretraining]))


def one_held_out_in(number: int, items: Iterable[Item], text: Callable[[Item], str]) -> Split[Item]:
    """Whether an item is held out follows from its own text, whatever the others are."""
    parts: tuple[list[Item], list[Item]] = ([], [])
    for item in items:
        parts[int.from_bytes(_digest(text(item))) % number == 0].append(item)
    return Split(tuple(parts[0]), tuple(parts[1]))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
