"""What the bundled model is pre-trained on: its own sorting, small configurations of reasoning-gym's datasets, and a
calculator to call.

Item i of a dataset with seed s is made from `Random(s + i)`, so that far seeds make other items. They may still ask the
same question where there are few: pre-training leaves out every question that is also held out.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from generate.pretraining_examples import Calculation, PretrainingTask, SingleAnswer
from tinker_atropos.environments.adapters.reasoning_gym.library import SYSTEM_PROMPTS, create_dataset
from tinker_atropos.environments.adapters.reasoning_gym.reasoning_gym_environment import HELD_OUT_SEED
from tinker_atropos.environments.bundled import arithmetic, digits

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


def pretraining_tasks() -> list[PretrainingTask]:
    return [_sorting(), *map(_gym_task, GYM_DATASETS), _calculator()]


def _sorting() -> PretrainingTask:
    split = digits.split()
    pretraining, held_out = (
        [SingleAnswer(digits.prompt(item), digits.answer(item)) for item in items]
        for items in (split.pretraining, split.held_out)
    )
    return PretrainingTask("sort", pretraining, held_out)


def _gym_task(name: str) -> PretrainingTask:
    held_out = {example.question: example for example in _gym_examples(name, HELD_OUT_SEED, HELD_OUT_ITEMS)}
    others = {example.question: example for example in _gym_examples(name, PRETRAINING_SEED, PRETRAINING_ITEMS)}
    pretraining = [example for question, example in others.items() if question not in held_out]
    return PretrainingTask(name, pretraining, list(held_out.values()))


def _gym_examples(name: str, seed: int, size: int) -> Iterator[SingleAnswer]:
    dataset = create_dataset(name, seed=seed, size=size, **GYM_DATASETS[name])
    for item in map(dataset.__getitem__, range(size)):
        yield SingleAnswer(item["question"], item["answer"], SYSTEM_PROMPTS["direct"], ("<answer>", "</answer>"))


def _calculator() -> PretrainingTask:
    split = arithmetic.split()
    return PretrainingTask(
        "calculator",
        list(map(Calculation, split.pretraining)),
        list(map(Calculation, split.held_out[:HELD_OUT_ITEMS])),
    )
