"""An agent in a sandbox: the tests of a small Python program fail, for it has one mistake, and the agent fixes it.

Program i is made from a random number generator of its own, so that it is the same on every machine and in every order.

In a template's source, `<name>` stands for a number that is drawn. What a program must do is in its docstring: whoever
fixes it needs nothing else.
"""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.rewards import weighted
from tinker_atropos.environments.agents.tool_context import ToolContext
from tinker_atropos.environments.bundled.splits import Split, one_held_out_in

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


PROMPT: Final = (
    "The tests in test_{name}.py fail: there is one mistake in {name}.py. Find it and fix it, and leave the tests as "
    "they are. `python -m unittest` runs them. Say what was wrong when they pass."
)

SIZE: Final = 800
"""How many are made."""

HELD_OUT_ONE_IN: Final = 5
CASES: Final = 4
"""Tests of a program. Some pass in spite of the mistake."""

DRAWN: Final = 100
"""Calls that are tried out to find them."""

Case = tuple[Arguments, Any]
"""The arguments of a call, and what it must return."""


@dataclass(frozen=True, slots=True)
class BrokenProgram:
    """A module, its function of the same name, and the source with and without the mistake."""

    name: str
    broken: str
    right: str
    cases: tuple[Case, ...]


@cache
def split() -> Split[BrokenProgram]:
    """The kinds take turns. No program is in both parts, not even with other tests."""
    return one_held_out_in(HELD_OUT_ONE_IN, map(item, range(SIZE)), lambda each: each.broken)


def item(index: int) -> BrokenProgram:
    template = TEMPLATES[index % len(TEMPLATES)]
    rng = random.Random(index)  # noqa: S311 -- reproducible on purpose
    numbers = {name: rng.randint(*bounds) for name, bounds in template.numbers.items()}
    old, new = rng.choice(template.mistakes)
    right = _filled(template.source, numbers)
    broken = _filled(template.source.replace(old, new, 1), numbers)
    return BrokenProgram(template.name, broken, right, _cases(template, right, broken, numbers, rng))


def files(item: BrokenProgram) -> dict[str, str]:
    """What is in the folder at first, by name."""
    return {f"{item.name}.py": item.broken, f"test_{item.name}.py": unit_tests(item)}


def unit_tests(item: BrokenProgram, mark: str = "") -> str:
    """The tests, for unittest and pytest. With a mark, each test that passes prints it."""
    lines = ["import unittest", "", f"from {item.name} import {item.name}", "", "", "class Tests(unittest.TestCase):"]
    for number, (arguments, expected) in enumerate(item.cases, 1):
        call = f"{item.name}({', '.join(map(repr, arguments))})"
        lines += [f"    def test_{number}(self):", f"        self.assertEqual({call}, {expected!r})"]
        lines += [f"        print({mark!r})"] if mark else []
        lines += [""]
    return "\n".join(lines)


def passed(item: BrokenProgram, output: str, mark: str) -> float:
    """Which share of the tests passed, by what `unit_tests` with this mark printed."""
    return output.count(mark) / len(item.cases)


def _cases(
    template: ProgramTemplate, right: str, broken: str, numbers: Mapping[str, int], rng: random.Random
) -> tuple[Case, ...]:
    """Different calls: half of them show the mistake, and the others do not, as far as there are such."""
    drawn = {repr(call): call for call in (template.arguments(rng, numbers) for _ in range(DRAWN))}.values()
    expected, returned = _outcomes(template.name, right, drawn), _outcomes(template.name, broken, drawn)
    known = list(zip(drawn, expected, returned, strict=True))
    showing = [(call, value) for call, value, wrong in known if wrong != value]
    hiding = [(call, value) for call, value, wrong in known if wrong == value]
    chosen = hiding[: CASES // 2]
    return tuple(sorted([*chosen, *showing[: CASES - len(chosen)]], key=repr))


def _outcomes(name: str, source: str, calls: Any) -> list[Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)  # noqa: S102 -- a template of this package
    return [_outcome(scope[name], call) for call in calls]


def _outcome(function: Callable[..., Any], call: Arguments) -> Any:
    try:
        return function(*call)
    except Exception as error:  # noqa: BLE001 -- a program with a mistake may raise anything
        return error


def _filled(source: str, numbers: Mapping[str, int]) -> str:
    for name, number in numbers.items():
        source = source.replace(f"<{name}>", str(number))
    return source


class FixPython(AgentEnvironment[BrokenProgram]):
    """Fix a small Python program, so that its tests pass."""

    name = "fix_python"

    @classmethod
    def config_init(cls) -> tuple[AgentConfig, list[object]]:
        return AgentConfig(
            tokenizer_name="bundled",
            enabled_toolsets=["terminal", "files"],
            max_agent_turns=10,
            group_size=8,
            batch_size=32,
            total_steps=100,
            max_token_length=8192,
        ), []

    def training_items(self) -> Sequence[BrokenProgram]:
        return split().training

    def held_out_items(self) -> Sequence[BrokenProgram]:
        return split().held_out

    def format_prompt(self, item: BrokenProgram) -> str:
        return PROMPT.format(name=item.name)

    def question(self, item: BrokenProgram) -> str:
        return item.broken  # the prompt does not tell items apart

    async def prepare(self, item: BrokenProgram, ctx: ToolContext) -> None:
        for path, content in files(item).items():
            ctx.write_file(path, content)

    async def compute_reward(self, item: BrokenProgram, result: AgentResult, ctx: ToolContext) -> Mapping[str, float]:
        mark = uuid.uuid4().hex  # unknown to the program, which may print and exit as it likes
        ctx.write_file(f"test_{item.name}.py", unit_tests(item, mark))
        tests = ctx.terminal(f"python -m unittest test_{item.name}", timeout=30)
        share = passed(item, tests["output"], mark)
        finished = result.finished_naturally
        return weighted({"fixed": (0.5, share >= 1), "tests": (0.375, share), "finished": (0.125, finished)})
