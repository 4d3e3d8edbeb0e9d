"""An environment of one's own in one file. It learns with the bundled model; run.yaml beside it trains it."""

import itertools
import random
from collections.abc import Sequence

from pydantic import Field

from tinker_atropos.environments.base import Environment, EnvironmentConfig, Message

Item = tuple[int, ...]
ITEMS: list[Item] = random.Random(0).sample(list(itertools.permutations(range(10), 4)), k=5040)


class SortDownConfig(EnvironmentConfig):
    """Its own fields stand beside the usual ones in `spec.config`."""

    credit_for_places: bool = Field(
        default=True, description="Score every digit in its right place; otherwise only the whole answer."
    )


class SortDown(Environment[Item]):
    """Sort four digits from high to low: `sort 4 1 3 2` is answered `4321`."""

    name = "sort_down"
    env_config_cls = SortDownConfig

    @classmethod
    def config_init(cls) -> tuple[SortDownConfig, list[object]]:
        return SortDownConfig(group_size=8, batch_size=32, total_steps=80, max_token_length=32), []

    def training_items(self) -> Sequence[Item]:
        return ITEMS[:4000]

    def held_out_items(self) -> Sequence[Item]:
        return ITEMS[4000:]

    def prompt(self, item: Item) -> list[Message]:
        return [{"role": "user", "content": "sort " + " ".join(map(str, item))}]

    def score(self, item: Item, completion: str) -> float:
        right = "".join(map(str, sorted(item, reverse=True)))
        if not self.config.credit_for_places:
            return float(completion == right)
        places = sum(one == other for one, other in zip(completion, right, strict=False))
        return places / 4 if len(completion) == 4 else 0.0
