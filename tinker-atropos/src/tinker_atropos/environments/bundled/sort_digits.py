"""An environment is one small file."""

from collections.abc import Sequence

from tinker_atropos.environments.base import Environment, EnvironmentConfig, Message
from tinker_atropos.environments.bundled import digits


class SortDigits(Environment[digits.Item]):
    """Sort four digits: `sort 4 1 3 2` is answered `1234`."""

    name = "sort_digits"

    @classmethod
    def config_init(cls) -> tuple[EnvironmentConfig, list[object]]:
        return EnvironmentConfig(
            tokenizer_name="bundled",
            group_size=8,
            batch_size=32,
            total_steps=40,
            max_token_length=32,
        ), []

    def training_items(self) -> Sequence[digits.Item]:
        return digits.split().training

    def held_out_items(self) -> Sequence[digits.Item]:
        return digits.split().held_out

    def prompt(self, item: digits.Item) -> list[Message]:
        return [{"role": "user", "content": digits.prompt(item)}]

    def score(self, item: digits.Item, completion: str) -> float:
        return float(completion == digits.answer(item))

    def gold_answer(self, item: digits.Item) -> str:
        return digits.answer(item)
