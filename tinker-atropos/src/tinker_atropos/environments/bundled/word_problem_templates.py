"""The kinds of word problems.

Bounds are such that no result is negative. What is divided is given as a product, so that the result is an integer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


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
