"""Fields, limits and defaults, compared with pydantic's of the same class."""

import enum
import importlib.util
import json
import typing
from pathlib import Path
from typing import Any

import annotated_types
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_atropos.environments.discovery import discover_entry
from tinker_atropos.environments.discovery.config_fields import fields_of
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources

HEAD = """
import typing
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, Optional, Union
from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen, MinLen
from pydantic import *
from pydantic import Field as F
LIMIT = 7
class Color(Enum):
    RED = "red"
    BLUE = "blue"
class Level(int, Enum):
    LOW = 1
class Model(BaseModel):
    x: int = 1
Sizes = Literal["small", "large"]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Union[int, float]
class Config(BaseModel):
"""


def read(folder: Path, body: str) -> dict[str, dict[str, Any]]:
    (folder / "env.py").write_text(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    sources = Sources(folder)
    module = sources.module_of_file("env.py")
    fields = fields_of(sources, SourceClass(module, module.classes["Config"]))
    return {name: each.to_wire() for name, each in fields.items()}


FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a limit": ("x: int = Field(3, ge=0, lt=10)", {"type": "int", "minimum": 0, "exclusive_maximum": 10, "default": 3}),
    "a limit by a constant": ("x: int = Field(default=LIMIT, le=LIMIT)", {"default": 7, "maximum": 7}),
    "a limit that is computed": ("x: int = Field(3, ge=int('0'), gt=1)", {"exclusive_minimum": 1}),
    "a length": ("x: str = Field('a', min_length=1, max_length=9)", {"min_length": 1, "max_length": 9}),
    "a pattern": ("x: str = Field('a', pattern=r'^a+$')", {"pattern": "^a+$"}),
    "of a list": ("x: list[int] = Field([], max_length=3)", {"type": "list[int]", "max_length": 3, "default": []}),
    "Field under another name of its module": ("x: int = typing.cast(int, 1)", {"default": None}),
    "annotated": (
        "x: Annotated[int, Field(ge=1, description='says so')] = 2",
        {"type": "int", "minimum": 1, "default": 2, "description": "says so"},
    ),
    "annotated, with its default": ("x: Annotated[int, Field(default=4)]", {"default": 4}),
    "annotated twice": (
        "x: Annotated[Share, Field(gt=0)] = 0.5",
        {"type": "float", "minimum": 0, "maximum": 1, "exclusive_minimum": 0},
    ),
    "annotated, or null": ("x: Annotated[int, Gt(0)] | None = None", {"type": "int | None", "exclusive_minimum": 0}),
    "optional": ("x: Optional[Annotated[int, Le(5)]] = None", {"type": "Optional[int]", "maximum": 5}),
    "annotated-types": ("x: Annotated[str, Len(1, 4)] = 'a'", {"min_length": 1, "max_length": 4}),
    "StringConstraints": ("x: Annotated[str, StringConstraints(pattern='a')] = 'a'", {"type": "str", "pattern": "a"}),
    "limits of both places": ("x: Annotated[int, Ge(1)] = Field(3, le=9)", {"minimum": 1, "maximum": 9, "default": 3}),
    "conint": ("x: conint(gt=2) = 3", {"type": "int", "exclusive_minimum": 2}),
    "conlist": ("x: conlist(int, min_length=1) = [1]", {"type": "list[int]", "min_length": 1}),
    "PositiveInt": ("x: PositiveInt = 3", {"type": "int", "exclusive_minimum": 0}),
    "NonNegativeFloat or null": ("x: NonNegativeFloat | None = None", {"type": "float | None", "minimum": 0}),
    "a limit of the elements": ("x: list[Annotated[int, Gt(0)]] = []", {"type": "list[int]"}),
    "a limit of one side": ("x: Annotated[int, Gt(0)] | str = 'a'", {"type": "int | str"}),
    "an enum": ("x: Color = Color.RED", {"type": "Color", "choices": ["red", "blue"], "default": "red"}),
    "an enum or null": ("x: Color | None = None", {"type": "Color | None", "choices": ["red", "blue"]}),
    "a list of enums": (
        "x: list[Color] = [Color.BLUE]",
        {"type": "list[Color]", "choices": ["red", "blue"], "default": ["blue"]},
    ),
    "an enum of numbers": ("x: Level = Level.LOW", {"choices": [1], "default": 1}),
    "an enum from elsewhere": ("x: 'EvalHandlingEnum' = 1", {"type": "EvalHandlingEnum"}),
    "two enums": ("x: Color | Level = Color.RED", {"type": "Color | Level"}),
    "an enum beside a model": ("x: dict[str, Model | Color] = {}", {"type": "dict[str, Model | Color]"}),
    "an enum beside anything": ("x: Color | Any = 1", {"choices": ["red", "blue"]}),
    "Literal": ("x: Literal['a', 'b'] = 'a'", {"type": "Literal['a', 'b']"}),
    "an alias": ("x: Sizes = 'small'", {"type": "Literal['small', 'large']"}),
    "an alias or null": ("x: Optional[Sizes] = None", {"type": "Optional[Literal['small', 'large']]"}),
    "an alias with limits": ("x: Share = 0.5", {"type": "float", "minimum": 0, "maximum": 1}),
    "an alias of a union": ("x: Number = 1", {"type": "Union[int, float]"}),
    "a forward reference": ("x: 'int | None' = None", {"type": "int | None"}),
    "a broken forward reference": ("x: 'int |' = None", {"type": "'int |'"}),
    "a default that a lambda makes": ("x: list[int] = Field(default_factory=lambda: [1, 2])", {"default": [1, 2]}),
    "a default that a function makes": ("x: float = Field(default_factory=time)", {"default": None}),
    "a name of the class body": ("LIMIT: int = 9\nx: int = LIMIT", {"default": None}),
    "no default": ("x: int = Field(..., ge=0)", {"default": None, "minimum": 0}),
    "what Field is given by **": ("x: int = Field(**kwargs)", {"default": None, "description": ""}),
    "a limit that makes no sense": ("x: int = Field(1, ge='a', min_length=-1, pattern=3, le=True)", {"type": "int"}),
}


@pytest.mark.parametrize(("body", "expected"), FIELDS.values(), ids=FIELDS)
def test_field(tmp_path: Path, body: str, expected: dict[str, Any]) -> None:
    found = read(tmp_path, body)["x"]
    plain = {"name", "type", "default", "description"}
    assert found == {name: found[name] for name in plain} | expected | {"name": "x"}


HIDDEN = [
    "_x: int = 1",
    "model_config = ConfigDict()",
    "x: ClassVar[int] = 1",
    "x: 'ClassVar[int]' = 1",
    "x: typing.ClassVar = 1",
    "x = 1",
    "def x(self): ...",
]


@pytest.mark.parametrize("body", HIDDEN)
def test_invalid_fields(tmp_path: Path, body: str) -> None:
    assert read(tmp_path, body) == {}


def test_a_subclass_overrides_a_field(tmp_path: Path) -> None:
    """Pydantic takes the new type and limits; the description is still the first one's."""
    first = "    x: int = Field(1, ge=0, description='first')\n    y: int = 2\n"
    (tmp_path / "env.py").write_text(f"{HEAD}{first}class Later(Config):\n    x: float = 0.5\n")
    sources = Sources(tmp_path)
    module = sources.module_of_file("env.py")
    fields = fields_of(sources, SourceClass(module, module.classes["Later"]))
    assert list(fields) == ["x", "y"]
    assert fields["x"].to_wire() == {"name": "x", "type": "float", "default": 0.5, "description": "first"}


def test_a_bomb_of_aliases_is_cut(tmp_path: Path) -> None:
    aliases = "\n".join(f"A{index} = dict[A{index + 1}, A{index + 1}]" for index in range(60))
    (tmp_path / "env.py").write_text(f"{aliases}\nA60 = int\nclass Config:\n    x: A0 = 1\n")
    sources = Sources(tmp_path)
    module = sources.module_of_file("env.py")
    assert len(fields_of(sources, SourceClass(module, module.classes["Config"]))["x"].type) < 10_000


SCHEMA_WORDS = {
    "minimum": "minimum",
    "exclusiveMinimum": "exclusive_minimum",
    "maximum": "maximum",
    "exclusiveMaximum": "exclusive_maximum",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


def numbers(limit: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(["ge", "gt", "le", "lt"]), limit)


length_limits = st.dictionaries(st.sampled_from(["min_length", "max_length"]), st.integers(0, 9))
shapes = st.sampled_from(
    [
        "x: {t} = Field({k})",
        "x: Annotated[{t}, Field({k})]",
        "x: Annotated[{t}, Field({k})] = None",
        "x: {t} | None = Field(None, {k})",
    ]
)
limited = st.one_of(
    st.tuples(st.just("int"), numbers(st.integers(-5, 5))),
    st.tuples(st.just("float"), numbers(st.integers(-5, 5) | st.sampled_from([0.5, -1.5]))),
    st.tuples(st.sampled_from(["str", "list[int]"]), length_limits),
)


@settings(max_examples=200, deadline=None)
@given(shapes, limited)
def test_limits_match_those_found_by_pydantic(tmp_path_factory, shape, field):
    type_, limits = field
    line = shape.format(t=type_, k=", ".join(f"{name}={value!r}" for name, value in limits.items()))
    names = {**vars(typing), **vars(annotated_types), **vars(pydantic), **vars(enum)}
    exec(f"class Config(BaseModel):\n    {line}", names)
    schema = names["Config"].model_json_schema()["properties"]["x"]
    flat = {**schema, **(schema["anyOf"][0] if "anyOf" in schema else {})}
    theirs = {ours: flat[word] for word, ours in SCHEMA_WORDS.items() if word in flat}
    found = read(tmp_path_factory.mktemp("limits"), line)["x"]
    assert {name: value for name, value in found.items() if name in SCHEMA_WORDS.values()} == theirs
    assert json.dumps(found)


CONFIG_INIT = """
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from pydantic import Field
COMMON = {"group_size": 5}
def some(): return {"group_size": 6}
class Config(BaseEnvConfig):
    mine: int = 1
class Other(BaseEnvConfig):
    other: int = 2
class Base(BaseEnv):
    env_config_cls = Config
    @classmethod
    def config_init(cls):
        return Config(group_size=3, mine=4), []
class E(Base):
    env_config_cls = Config
"""
UNKNOWN: Any = None

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "at once": ("return Config(group_size=8, mine=9), []", {"group_size": 8, "mine": 9, "total_steps": 1000}),
    "in a list": ("return [Config(group_size=8), []]", {"group_size": UNKNOWN}),
    "by a variable": ("config = Config(mine=9)\nreturn config, [APIServerConfig()]", {"mine": 9, "group_size": 4}),
    "by a typed variable": ("config: Config = Config(mine=9)\nreturn (config, [])", {"mine": 9}),
    "by the class's own": ("return cls.env_config_cls(mine=9), []", {"mine": 9, "group_size": 4}),
    "another class": ("return Other(other=7), []", {"other": 7, "mine": "no field"}),
    "inherited": ("return super().config_init()", {"group_size": 3, "mine": 4}),
    "inherited and unpacked": ("config, servers = super().config_init()\nreturn config, servers", {"mine": 4}),
    "inherited and changed": (
        "config, servers = super().config_init()\nconfig.mine = 9\nreturn config, servers",
        {"group_size": 3, "mine": UNKNOWN},
    ),
    "changed afterwards": (
        "config = Config(mine=9)\nif True:\n    config.group_size = 2\nreturn config, []",
        {"mine": 9, "group_size": UNKNOWN, "total_steps": 1000},
    ),
    "with a dictionary": ("return Config(mine=9, **COMMON), []", {"mine": 9, "group_size": 5, "total_steps": 1000}),
    "with what a function gives": (
        "return Config(mine=9, **some()), []",
        {"mine": 9, "group_size": UNKNOWN, "total_steps": UNKNOWN},
    ),
    "with what a function gives for a field": ("return Config(mine=max(1, 2)), []", {"mine": UNKNOWN, "group_size": 4}),
    "one of two": ("if some():\n    return Config(mine=9), []\nreturn Config(mine=8), []", {"mine": UNKNOWN}),
    "assigned twice": ("config = Config(mine=9)\nconfig = Config(mine=8)\nreturn config, []", {"mine": UNKNOWN}),
    "handed to somebody": ("config = Config(mine=9)\nprint(config)\nreturn config, []", {"mine": UNKNOWN}),
    "a method of the config": (
        "config = Config(mine=9)\nconfig.__init__(mine=7)\nreturn config, []",
        {"mine": UNKNOWN, "group_size": UNKNOWN},
    ),
    "a copy": ("return Config().model_copy(update={'mine': 9}), []", {"mine": UNKNOWN}),
    "a function of its own": ("def make():\n    return 3\nreturn Config(mine=9), []", {"mine": 9}),
    "made elsewhere": ("made = (Config(mine=9), [])\nreturn made", {"mine": UNKNOWN}),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES)
def test_default_is_taken_from_config_init_or_unknown(tmp_path: Path, body: str, expected: dict[str, Any]) -> None:
    method = "".join(f"        {line}\n" for line in body.splitlines())
    file = tmp_path / "config_init_of_a_test.py"
    file.write_text(f"{CONFIG_INIT}    @classmethod\n    def config_init(cls):\n{method}")
    found = discover_entry(tmp_path, file.name)
    assert found.problem is None
    defaults = {each.name: each.default for each in found.environments[0].fields}
    assert {name: defaults.get(name, "no field") for name in expected} == expected
    actual = called(file)[0].model_dump(mode="json")
    for name, default in defaults.items():
        assert default is None or default == actual[name], name


def called(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.E.config_init()
