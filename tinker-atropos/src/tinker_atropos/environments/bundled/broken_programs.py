"""Small Python programs with one mistake each, and tests that show it.

Program i is made from a random number generator of its own, so that it is the same on every machine and in every order.
"""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tinker_atropos.environments.bundled.broken_program_templates import TEMPLATES, Arguments, ProgramTemplate

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


@dataclass(frozen=True, slots=True)
class ProgramSplit:
    """No program is in both, not even with other tests."""

    training: tuple[BrokenProgram, ...]
    held_out: tuple[BrokenProgram, ...]


@cache
def split() -> ProgramSplit:
    """The kinds take turns. Whether a program is held out follows from a hash of its source."""
    items = [item(index) for index in range(SIZE)]
    return ProgramSplit(
        training=tuple(each for each in items if not _is_held_out(each)),
        held_out=tuple(each for each in items if _is_held_out(each)),
    )


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


def _is_held_out(item: BrokenProgram) -> bool:
    return int.from_bytes(hashlib.sha256(item.broken.encode()).digest()) % HELD_OUT_ONE_IN == 0
