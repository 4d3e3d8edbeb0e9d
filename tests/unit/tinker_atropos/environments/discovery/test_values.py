import ast
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources
from tinker_atropos.environments.discovery.values import UNKNOWN, enum_values, literal

SOURCE = """
from enum import Enum, IntEnum, auto
import math
LIMIT = 7
SAME = LIMIT
LIST = [LIMIT, (1, 2)]
DICT = {"a": LIMIT, "b": {1}}
TWICE = 1
TWICE = 2
COUNTED = 1
COUNTED += 1
LOOP = LOOP
UNPACKED, OTHER = 1, 2
CHANGED = {}
CHANGED["a"] = 1
A = [B, B, B, B]
B = [C, C, C, C]
C = [D, D, D, D]
D = [E, E, E, E]
E = [F, F, F, F]
F = [G, G, G, G]
G = ["x", "x", "x", "x"]

class Color(Enum):
    RED = "red"
    BLUE = "blue"
    CRIMSON = "red"
    def shade(self): ...

class Level(IntEnum):
    LOW = 1
    HIGH = LIMIT

class Automatic(Enum):
    A = auto()

class Made(str, Enum):
    A = "a"
    def __new__(cls, value): ...

class Settings:
    size = 3
"""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "lib.py").write_text(SOURCE)
    (tmp_path / "env.py").write_text("import lib\nfrom lib import *\nfrom lib import LIMIT as MOST\n")
    return Sources(tmp_path)


def value_of(sources: Sources, text: str) -> object:
    module = sources.module_of_file("env.py")
    return literal(sources, module, ast.parse(text, mode="eval").body)


KNOWN = {
    "None": None,
    "True": True,
    "'a' 'b'": "ab",
    "-3": -3,
    "-LIMIT": -7,
    "1e3": 1000.0,
    "MOST": 7,
    "SAME": 7,
    "lib.LIMIT": 7,
    "LIST": [7, [1, 2]],
    "DICT": {"a": 7, "b": [1]},
    "{}": {},
    "list()": [],
    "dict()": {},
    "Color.RED": "red",
    "lib.Color.RED": "red",
    "Color.RED.value": "red",
    "Level.HIGH": 7,
    "Settings.size": 3,
    "1024 * 16": 16384,
    "2**20": 1048576,
    "LIMIT // 2 - 1": 2,
    "3 / 4": 0.75,
}


@pytest.mark.parametrize(("text", "value"), KNOWN.items(), ids=KNOWN)
def test_known(sources: Sources, text: str, value: object) -> None:
    assert value_of(sources, text) == value
    assert type(value_of(sources, text)) is type(value)


UNKNOWNS = [
    *(
        "NOWHERE",
        "TWICE",
        "COUNTED",
        "LOOP",
        "UNPACKED",
        "CHANGED",
        "...",
        "b'x'",
        "1j",
        "1e999",
        "2**63",
        "10**10**10",
    ),
    *("f'{LIMIT}'", "float('inf')", "LIMIT if LIMIT else 0", "[LIMIT, NOWHERE]", "{1: 2}", "{**DICT}", "[*LIST]"),
    *(
        "Color.GREEN",
        "Color.shade",
        "Automatic.A",
        "Made.A",
        "math.pi",
        "Color",
        "lib",
        "1 / 0",
        "'a' + 'b'",
        "'a' * 9",
    ),
    *("True + 1", "0 ** -1", "(-8) ** 0.5", "A", "not 1", "~1", "1 << 3", "lambda: 1"),
]


@pytest.mark.parametrize("text", UNKNOWNS)
def test_values_known_only_at_run_time(sources: Sources, text: str) -> None:
    assert value_of(sources, text) is UNKNOWN


@pytest.mark.parametrize(
    ("name", "values"), [("Color", ["red", "blue"]), ("Level", [1, 7]), ("Automatic", None), ("Made", None)]
)
def test_enum(sources: Sources, name: str, values: list[object] | None) -> None:
    module = sources.module_of_file("env.py")
    enum = sources.lookup(module, name)
    assert isinstance(enum, SourceClass)
    assert enum_values(sources, enum) == values


numbers = st.integers(-(2**70), 2**70) | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)
expressions = st.recursive(
    numbers.map(repr),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**"]), inner),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(expressions)
@example("(1e-236 ** -2)")
def test_arithmetic_matches_python_or_is_unknown(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("sums")
    (folder / "env.py").write_text("")
    ours = value_of(Sources(folder), text)
    if ours is UNKNOWN:
        return
    theirs = eval(text)
    assert (type(ours), ours) == (type(theirs), theirs)
    assert isinstance(ours, int | float)
    assert math.isfinite(ours)
    assert not isinstance(ours, int) or -(2**63) <= ours < 2**63
