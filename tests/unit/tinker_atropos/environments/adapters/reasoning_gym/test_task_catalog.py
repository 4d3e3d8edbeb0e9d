"""The catalog of reasoning-gym is read from source: the library itself says whether that is right."""

import ast
import dataclasses
import enum
import typing

import pytest

from tinker_atropos.environments.adapters.adapter_fields import VALUES
from tinker_atropos.environments.adapters.reasoning_gym.library import DATASETS
from tinker_atropos.environments.adapters.reasoning_gym.task_catalog import (
    NOT_TASKS,
    OURS,
    asserted_limits,
    discover_tasks,
    task_sources,
)

UNKNOWN_DEFAULTS = {
    *("arc_agi.board_format_opts", "rearc.board_format_opts", "game_of_life.filled_cells"),
    *(f"rearc.{pairs}_difficulty_{kind}" for pairs in ("rng", "pso") for kind in ("ranges", "weights")),
    *(f"time_intervals.{end}_{unit}" for end in ("min", "max") for unit in ("time", "date")),
}
"""Made by code that is not run: the environment's own class has them."""


def test_every_task_with_every_field() -> None:
    assert set(task_sources()) == set(DATASETS) - set(NOT_TASKS)
    for name, source in task_sources().items():
        _, config = DATASETS[name]
        expected = [each.name for each in dataclasses.fields(config) if each.name not in OURS]
        assert [field.name for field in source.fields] == expected, name
        assert source.description, name
        assert all(field.description for field in source.fields), name


@pytest.mark.parametrize("name", task_sources())
def test_defaults_are_the_librarys(name: str) -> None:
    _, config = DATASETS[name]
    found = {field.name: field.default for field in task_sources()[name].fields}
    for each in dataclasses.fields(config):
        if each.name in OURS or f"{name}.{each.name}" in UNKNOWN_DEFAULTS:
            continue
        made = each.default_factory() if each.default_factory is not dataclasses.MISSING else each.default
        assert found[each.name] == _as_json(made), each.name


def _as_json(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value


def test_types_and_limits_are_those_of_the_source() -> None:
    fields = {field.name: field for field in task_sources()["number_sorting"].fields}
    assert (fields["min_numbers"].type, fields["max_value"].type) == ("int", "float")
    assert fields["min_numbers"].description == "Minimum numbers to sort"
    assert (fields["min_numbers"].limits, fields["min_decimals"].limits) == ({"exclusive_minimum": 0}, {"minimum": 0})


def test_the_common_fields_are_told_once() -> None:
    found = discover_tasks()
    [family] = found.families
    common = {field.name: field for field in family.fields}
    assert {"group_size", "eval_items", "seed", "size", "system_prompt", "curriculum"} <= set(common)
    assert all(common[name].default == value for name, value in VALUES.items())
    names = {each.name: each for each in found.environments}
    assert names["reasoning-gym/chain_sum"].family == "reasoning-gym"
    assert not set(common) & {field.name for field in names["reasoning-gym/chain_sum"].fields}
    mix = {field.name: field for field in names["reasoning-gym/mix"].fields}
    assert mix["tasks"].default == {"chain_sum": 1.0, "number_sorting": 1.0, "spell_backward": 1.0}


LIMITS: dict[str, dict[str, typing.Any]] = {
    "assert self.n > 0": {"n": {"exclusive_minimum": 0}},
    "assert 0 <= self.p <= 1.0": {"p": {"minimum": 0, "maximum": 1.0}},
    "assert self.n >= 2 and self.m < 9": {"n": {"minimum": 2}, "m": {"exclusive_maximum": 9}},
    "assert -1 < self.n": {"n": {"exclusive_minimum": -1}},
    "assert self.n >= self.m": {},
    "assert self.n in (1, 2)": {},
    "assert self.n > 0 or self.m > 0": {},
    "assert other.n > 0": {},
    "assert self.n > True": {},
}


@pytest.mark.parametrize(("source", "limits"), LIMITS.items(), ids=LIMITS)
def test_what_a_class_asserts_of_one_field(source: str, limits: dict[str, typing.Any]) -> None:
    node = ast.parse(f"class C:\n def validate(self):\n  {source}").body[0]
    assert isinstance(node, ast.ClassDef)
    assert asserted_limits(node) == limits
