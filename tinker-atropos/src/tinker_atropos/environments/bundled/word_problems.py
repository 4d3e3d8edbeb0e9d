"""Word problems like those of grade school, made from templates: a few steps of integer arithmetic each.

Problem i is made from a random number generator of its own, so that it is the same on every machine and in every order.
"""

import hashlib
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from tinker_atropos.environments.bundled.arithmetic import last_number
from tinker_atropos.environments.bundled.word_problem_templates import TEMPLATES, ProblemStep

SIZE: Final = 10_000
"""How many are made; those that ask the same as an earlier one are left out."""

HELD_OUT_ONE_IN: Final = 10

NAMES: Final = ("Ada", "Ben", "Chloe", "Dario", "Emma", "Farid", "Grace", "Hiro", "Irma", "Jonas", "Keiko", "Liam")
OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
)
BOXED: Final = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A problem, and its solution line by line; the last line ends with the answer."""

    kind: str
    question: str
    steps: tuple[str, ...]
    answer: int


@dataclass(frozen=True, slots=True)
class ProblemSplit:
    """Disjoint questions."""

    training: tuple[WordProblem, ...]
    held_out: tuple[WordProblem, ...]


@cache
def split(seed: int = 0, size: int = SIZE) -> ProblemSplit:
    """The kinds take turns. Whether a question is held out follows from its own hash, whatever the seed is."""
    items = {each.question: each for each in (item(index, seed) for index in range(size))}.values()
    return ProblemSplit(
        training=tuple(each for each in items if not _is_held_out(each.question)),
        held_out=tuple(each for each in items if _is_held_out(each.question)),
    )


def item(index: int, seed: int = 0) -> WordProblem:
    template = TEMPLATES[index % len(TEMPLATES)]
    rng = random.Random(f"{seed} {index}")  # noqa: S311 -- reproducible on purpose
    name, friend = rng.sample(NAMES, 2)
    words = {"name": name, "friend": friend, "thing": rng.choice(template.things)}
    numbers = {key: rng.randint(*bounds) for key, bounds in template.numbers.items()}
    _solve(template.givens, numbers)
    asked = template.question.format(**words, **numbers)
    steps = [step.format(**words) for step in _solve(template.steps, numbers)]
    return WordProblem(template.kind, asked, tuple(steps), numbers[template.steps[-1].result])


def question(item: WordProblem) -> str:
    """The content of the user's message."""
    return item.question


def answer(item: WordProblem) -> int:
    return item.answer


def worked_solution(item: WordProblem) -> str:
    """Each step on its line, and the answer at the end: it earns the full reward."""
    return "\n".join([*item.steps, f"The answer is {item.answer}."])


def graded(item: WordProblem, completion: str) -> float:
    r"""1 if the answer is the number in the last `\boxed{}`, or without one the last number of the text; else 0."""
    boxed = BOXED.findall(completion)
    return float(last_number(boxed[-1] if boxed else completion) == item.answer)


def _solve(steps: Sequence[ProblemStep], numbers: dict[str, int]) -> list[str]:
    """Adds the results to `numbers`; each step as it is written."""
    written = []
    for step in steps:
        left, right = numbers[step.left], numbers[step.right]
        result = numbers[step.result] = OPERATIONS[step.operator](left, right)
        written.append(f"{step.says}: {left} {step.operator} {right} = {result}.")
    return written


def _is_held_out(question: str) -> bool:
    return int.from_bytes(hashlib.sha256(question.encode()).digest()) % HELD_OUT_ONE_IN == 0
