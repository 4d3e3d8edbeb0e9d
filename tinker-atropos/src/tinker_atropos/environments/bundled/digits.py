"""The task of the bundled model: sort four digits. `sort 4 1 3 2` is answered `1234`.

The model is pre-trained on one part of the 10,000 prompts, trained by RL on another and evaluated on a third.
"""

import itertools
from functools import cache

from tinker_atropos.environments.bundled.splits import Split, in_shuffled_order

Item = tuple[int, ...]

PRETRAINING_SIZE = 6_000
TRAINING_SIZE = 2_000


@cache
def split() -> Split[Item]:
    return in_shuffled_order(itertools.product(range(10), repeat=4), prompt, PRETRAINING_SIZE, TRAINING_SIZE)


def prompt(item: Item) -> str:
    """The content of the user's message."""
    return "sort " + " ".join(map(str, item))


def answer(item: Item) -> str:
    """The only correct answer, without the end-of-turn token."""
    return "".join(map(str, sorted(item)))
