"""What the bundled model is pre-trained on: its own sorting, and small configurations of reasoning-gym's datasets.

Item i of a dataset with seed s is made from `Random(s + i)`, so that far seeds make other items. They may still ask the
same question where there are few: pre-training leaves out every question that is also held out.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tinker_atropos.environments import digits
from tinker_atropos.environments.adapters.reasoning_gym.library import SYSTEM_PROMPTS, create_dataset
from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_config import HELD_OUT_SEED
from tinker_atropos.environments.base import Message

PRETRAINING_SEED = 1_000_000
PRETRAINING_ITEMS = 40_000
HELD_OUT_ITEMS = 500
"""The first ones of the seed whose first `eval_items` (250) a run with seed 0 evaluates."""

GYM_DATASETS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "spell_backward": {"min_word_len": 3, "max_word_len": 4},
        "rotate_matrix": {"min_n": 2, "max_n": 2, "max_rotations": 3},
    }
)
"""Datasets with their configurations. A run that trains the bundled model uses the same."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question and its right answer; tags may stand around the answer, and a mistake leaves them alone."""

    question: str
    answer: str
    system_prompt: str = ""
    tags: tuple[str, str] = ("", "")

    def messages(self) -> list[Message]:
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        return [*system, {"role": "user", "content": self.question}]


@dataclass(frozen=True, slots=True)
class PretrainingTask:
    """Examples of two disjoint sets of questions."""

    name: str
    pretraining: Sequence[Example]
    held_out: Sequence[Example]


def pretraining_tasks() -> list[PretrainingTask]:
    return [_sorting(), *map(_gym_task, GYM_DATASETS)]


def mistake(answer: str, rng: random.Random) -> str:
    """The answer with two of its letters or digits swapped: a plausible mistake in every task here."""
    characters = list(answer)
    i, j = rng.sample([place for place, character in enumerate(characters) if character.isalnum()], 2)
    characters[i], characters[j] = characters[j], characters[i]
    return "".join(characters)


def _sorting() -> PretrainingTask:
    split = digits.split()
    pretraining, held_out = (
        [Example(digits.prompt(item), digits.answer(item)) for item in items]
        for items in (split.pretraining, split.held_out)
    )
    return PretrainingTask("sort", pretraining, held_out)


def _gym_task(name: str) -> PretrainingTask:
    held_out = {example.question: example for example in _gym_examples(name, HELD_OUT_SEED, HELD_OUT_ITEMS)}
    others = {example.question: example for example in _gym_examples(name, PRETRAINING_SEED, PRETRAINING_ITEMS)}
    pretraining = [example for question, example in others.items() if question not in held_out]
    return PretrainingTask(name, pretraining, list(held_out.values()))


def _gym_examples(name: str, seed: int, size: int) -> Iterator[Example]:
    dataset = create_dataset(name, seed=seed, size=size, **GYM_DATASETS[name])
    for item in map(dataset.__getitem__, range(size)):
        yield Example(item["question"], item["answer"], SYSTEM_PROMPTS["direct"], ("<answer>", "</answer>"))
