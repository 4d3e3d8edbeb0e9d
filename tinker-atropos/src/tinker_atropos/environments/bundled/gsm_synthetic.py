"""Word problems like those of grade school, made from templates: a few steps of integer arithmetic each. A text is
answered by a text, and its last number counts.

Problem i is made from a random number generator of its own, so that it is the same on every machine and in every order.

Bounds are such that no result is negative. What is divided is given as a product, so that the result is an integer.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from tinker_atropos.environments.base import Environment, EnvironmentConfig, Message
from tinker_atropos.environments.bundled.arithmetic import last_number
from tinker_atropos.environments.bundled.splits import Split, one_held_out_in


@dataclass(frozen=True, slots=True)
class ProblemStep:
    """`result = left operator right`, all three names of numbers. `says`: what it is, in the question's words."""

    says: str
    result: str
    left: str
    operator: str
    right: str


@dataclass(frozen=True, slots=True)
class ProblemTemplate:
    """`question` has placeholders for the words name, friend and thing, and for numbers. `numbers` are drawn between
    bounds, `givens` are computed from them before the question is asked, and `steps` solve it.
    """

    kind: str
    question: str
    numbers: Mapping[str, tuple[int, int]]
    steps: Sequence[ProblemStep]
    things: Sequence[str] = ("apples",)
    givens: Sequence[ProblemStep] = ()


def _given(result: str, left: str, operator: str, right: str) -> ProblemStep:
    return ProblemStep("", result, left, operator, right)


TEMPLATES: Final = (
    ProblemTemplate(
        "boxes",
        "{name} buys {boxes} boxes with {each} {thing} in each, and gives {gift} of them to {friend}. "
        "How many {thing} does {name} have left?",
        {"boxes": (3, 15), "each": (6, 24), "gift": (2, 17)},
        [
            ProblemStep("Bought", "bought", "boxes", "*", "each"),
            ProblemStep("Left", "left", "bought", "-", "gift"),
        ],
        ("apples", "pencils", "marbles", "stickers", "cookies"),
    ),
    ProblemTemplate(
        "change",
        "{name} buys {count} {thing} at ${price} each and a bag for ${bag}, and pays with ${paid}. "
        "How many dollars does {name} get back?",
        {"count": (2, 9), "price": (3, 14), "bag": (2, 12), "change": (1, 20)},
        [
            ProblemStep("Price of the {thing}", "cost", "count", "*", "price"),
            ProblemStep("Price of everything", "total", "cost", "+", "bag"),
            ProblemStep("Change", "back", "paid", "-", "total"),
        ],
        ("books", "plants", "puzzles", "scarves"),
        [
            _given("things", "count", "*", "price"),
            _given("spent", "things", "+", "bag"),
            _given("paid", "spent", "+", "change"),
        ],
    ),
    ProblemTemplate(
        "shares",
        "{name} has {own} {thing} and {friend} has {more} more than {name}. They put all of them together and divide "
        "them equally among {people} children. How many {thing} does each child get?",
        {"own": (5, 25), "people": (3, 9), "each": (20, 60)},
        [
            ProblemStep("{friend} has", "friends", "own", "+", "more"),
            ProblemStep("Together", "together", "own", "+", "friends"),
            ProblemStep("Each child", "share", "together", "/", "people"),
        ],
        ("stickers", "shells", "beads", "cards"),
        [
            _given("all", "people", "*", "each"),
            _given("others", "all", "-", "own"),
            _given("more", "others", "-", "own"),
        ],
    ),
    ProblemTemplate(
        "wages",
        "{name} earns ${wage} an hour and works {hours} hours a day, {days} days a week. Every week {name} spends "
        "${spent} and saves the rest. How many dollars does {name} save in {weeks} weeks?",
        {"wage": (12, 30), "hours": (3, 8), "days": (3, 6), "spent": (20, 100), "weeks": (2, 8)},
        [
            ProblemStep("Hours a week", "weekly_hours", "hours", "*", "days"),
            ProblemStep("Earned a week", "earned", "weekly_hours", "*", "wage"),
            ProblemStep("Saved a week", "weekly", "earned", "-", "spent"),
            ProblemStep("Saved in all", "saved", "weekly", "*", "weeks"),
        ],
    ),
    ProblemTemplate(
        "distance",
        "{name} rides a bicycle for {first} hours at {fast} km an hour and then for {second} hours at {slow} km an "
        "hour. How many km does {name} ride in all?",
        {"first": (2, 6), "fast": (18, 30), "second": (2, 5), "slow": (8, 17)},
        [
            ProblemStep("First part, in km", "far", "first", "*", "fast"),
            ProblemStep("Second part, in km", "near", "second", "*", "slow"),
            ProblemStep("In all, in km", "distance", "far", "+", "near"),
        ],
    ),
    ProblemTemplate(
        "recipe",
        "A recipe for {servings} people needs {grams} grams of {thing}. {name} cooks for {people} people and has "
        "{has} grams of {thing}. How many more grams does {name} need?",
        {"servings": (2, 6), "each": (20, 90), "more": (3, 9), "short": (10, 90)},
        [
            ProblemStep("For one person, in grams", "portion", "grams", "/", "servings"),
            ProblemStep("For all, in grams", "needed", "portion", "*", "people"),
            ProblemStep("Missing, in grams", "missing", "needed", "-", "has"),
        ],
        ("rice", "flour", "pasta", "lentils"),
        [
            _given("grams", "servings", "*", "each"),
            _given("people", "servings", "+", "more"),
            _given("all", "people", "*", "each"),
            _given("has", "all", "-", "short"),
        ],
    ),
)


SIZE: Final = 10_000
"""How many are made; those that ask the same as an earlier one are left out."""

HELD_OUT_ONE_IN: Final = 10

NAMES: Final = ("Ada", "Ben", "Chloe", "Dario", "Emma", "Farid", "Grace", "Hiro", "Irma", "Jonas", "Keiko", "Liam")
OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
)
SYSTEM_PROMPT: Final = r"Solve the problem step by step. Write the answer at the end, in \boxed{}."
BOXED: Final = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A problem, and its solution line by line; the last line ends with the answer."""

    kind: str
    question: str
    steps: tuple[str, ...]
    answer: int


@cache
def split(seed: int = 0, size: int = SIZE) -> Split[WordProblem]:
    """The kinds take turns. Whether a question is held out follows from its own hash, whatever the seed is."""
    items = {each.question: each for each in (item(index, seed) for index in range(size))}.values()
    return one_held_out_in(HELD_OUT_ONE_IN, items, lambda each: each.question)


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


class GsmSynthetic(Environment[WordProblem]):
    """Word problems of two to four steps, made from templates; the answer is an integer."""

    name = "gsm_synthetic"

    @classmethod
    def config_init(cls) -> tuple[EnvironmentConfig, list[object]]:
        return EnvironmentConfig(
            tokenizer_name="bundled",
            group_size=8,
            batch_size=64,
            total_steps=100,
            max_token_length=1024,
        ), []

    def training_items(self) -> Sequence[WordProblem]:
        return split().training

    def held_out_items(self) -> Sequence[WordProblem]:
        return split().held_out

    def prompt(self, item: WordProblem) -> list[Message]:
        asked = {"role": "user", "content": item.question}
        return [{"role": "system", "content": SYSTEM_PROMPT}, asked]

    def score(self, item: WordProblem, completion: str) -> float:
        return graded(item, completion)

    def gold_answer(self, item: WordProblem) -> str:
        return worked_solution(item)

    def wrong_answers(self, item: WordProblem) -> Sequence[str]:
        return ("I do not know.", rf"\boxed{{{item.answer + 1}}}")
