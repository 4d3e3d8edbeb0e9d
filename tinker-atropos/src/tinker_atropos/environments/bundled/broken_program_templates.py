"""The kinds of small programs, and the mistakes that can be planted in each.

In a source, `<name>` stands for a number that is drawn. What a program must do is in its docstring: whoever fixes it
needs nothing else.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ProgramTemplate:
    """A module `name` with the function of that name. A mistake is a text of the source, and what takes its place.

    `numbers` are drawn between bounds; `arguments` draws those of one call, given the numbers.
    """

    name: str
    source: str
    mistakes: Sequence[tuple[str, str]]
    arguments: Callable[[random.Random, Mapping[str, int]], Arguments]
    numbers: Mapping[str, tuple[int, int]]


def _numbers(rng: random.Random, least: int = 0, most: int = 6, top: int = 9) -> list[int]:
    """Between `least` and `most` of them, each from 0 to `top`."""
    return [rng.randint(0, top) for _ in range(rng.randint(least, most))]


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(("a", "A", "pear", "Pear", "plum", "fig", "melon", "Melon"), k=rng.randint(0, 7)))


TEMPLATES: Final = (
    ProgramTemplate(
        "order_price",
        '''\
def order_price(count, each):
    """The price of `count` things. From <many> things on, all of them are <percent> percent cheaper, rounded down."""
    price = count * each
    if count >= <many>:
        price -= price * <percent> // 100
    return price
''',
        ((">= <many>", "> <many>"), ("price -= price", "price = price"), ("<percent> // 100", "<percent> // 10")),
        lambda rng, numbers: (numbers["many"] + rng.randint(-2, 2), rng.randint(11, 60)),
        {"many": (3, 30), "percent": (5, 40)},
    ),
    ProgramTemplate(
        "window_sums",
        '''\
def window_sums(values):
    """The sum of every <size> neighbors in a list, from the left; empty if there are fewer."""
    sums = []
    for start in range(len(values) - <size> + 1):
        sums.append(sum(values[start : start + <size>]))
    return sums
''',
        (
            ("- <size> + 1", "- <size>"),
            ("start + <size>]", "start + <size> - 1]"),
            ("sums.append(sum(", "sums.append(max("),
        ),
        lambda rng, numbers: (_numbers(rng, numbers["size"] - 1, numbers["size"] + 3),),
        {"size": (2, 5)},
    ),
    ProgramTemplate(
        "clamped",
        '''\
def clamped(value):
    """The nearest number that is at least <low> and at most <high>."""
    if value < <low>:
        return <low>
    if value > <high>:
        return <high>
    return value
''',
        (
            ("value < <low>", "value > <low>"),
            ("return <high>", "return <low>"),
            ("    return value\n", "    return None\n"),
        ),
        lambda rng, numbers: (rng.choice((numbers["low"], numbers["high"])) + rng.randint(-20, 20),),
        {"low": (-50, 0), "high": (10, 90)},
    ),
    ProgramTemplate(
        "word_counts",
        '''\
def word_counts(text):
    """How often each word of at least <length> letters is in a text. Upper case does not matter."""
    counts = {}
    for word in text.lower().split():
        if len(word) >= <length>:
            counts[word] = counts.get(word, 0) + 1
    return counts
''',
        (("text.lower()", "text"), (">= <length>", "> <length>"), ("counts.get(word, 0) + 1", "1")),
        lambda rng, _: (_words(rng),),
        {"length": (3, 5)},
    ),
    ProgramTemplate(
        "runs",
        '''\
def runs(values):
    """Runs of equal neighbors in a list, as pairs of the value and how often it follows itself; at most <most> each."""
    found = []
    for value in values:
        if found and found[-1][0] == value and found[-1][1] < <most>:
            found[-1] = (value, found[-1][1] + 1)
        else:
            found.append((value, 1))
    return found
''',
        (("[1] < <most>", "[1] <= <most>"), ("(value, 1)", "(value, 0)"), ("found[-1][0] == value and ", "")),
        lambda rng, _: (_numbers(rng, 0, 9, top=1),),
        {"most": (2, 4)},
    ),
    ProgramTemplate(
        "shifted",
        '''\
def shifted(text):
    """The text with each letter from a to z moved on by <shift>, after z again from a. All else stays."""
    moved = ""
    for letter in text:
        if "a" <= letter <= "z":
            letter = chr((ord(letter) - ord("a") + <shift>) % 26 + ord("a"))
        moved += letter
    return moved
''',
        ((" % 26", " % 25"), ('<= "z"', '< "z"'), ("+ <shift>)", "- <shift>)"), ("moved += letter", "moved = letter")),
        lambda rng, _: ("".join(rng.choices("abcxyzAZ -", k=rng.randint(0, 8))),),
        {"shift": (1, 12)},
    ),
    ProgramTemplate(
        "merged",
        '''\
def merged(spans):
    """Spans (first, last) in order. Those that overlap, or have a gap of at most <gap> between them, become one."""
    joined = []
    for first, last in sorted(spans):
        if joined and first - joined[-1][1] <= <gap>:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
''',
        (("sorted(spans)", "spans"), ("<= <gap>", "< <gap>"), ("max(joined[-1][1], last)", "last")),
        lambda rng, _: ([(first, first + rng.randint(0, 9)) for first in _numbers(rng, 0, 5, top=30)],),
        {"gap": (1, 4)},
    ),
    ProgramTemplate(
        "top_scores",
        '''\
def top_scores(scores):
    """The <count> best scores, best first. Each is there only once; there may be fewer."""
    best = []
    for score in sorted(scores, reverse=True):
        if score not in best:
            best.append(score)
    return best[:<count>]
''',
        ((", reverse=True", ""), ("if score not in best", "if True"), ("[:<count>]", "[: <count> - 1]")),
        lambda rng, _: (_numbers(rng, 0, 8),),
        {"count": (2, 5)},
    ),
)
