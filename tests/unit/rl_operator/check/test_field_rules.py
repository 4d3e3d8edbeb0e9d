"""The rules for one field: where its refusals end and values begin, and that the environment's container draws the same
line. What is said of usual values: tests/data/refusals.yaml.
"""

import json
import re
import time
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, catalog_of, inputs_of, make_run, make_runtime

from rl_operator.api.catalog import Catalog, EnvironmentField
from rl_operator.check.field_rules import constraint_problem, type_problem
from rl_operator.check.run_check import check_run


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"trainer": {"checkpoint_dir": "/x"}}, "WiredField", "spec.trainer.checkpoint_dir", "leave the field out"),
        ({"trainer": {"wandb_project": "x"}}, "WiredField", "spec.trainer.wandb_project", "spec.wandb.project"),
        ({"trainer": {"lora_rnk": 8}}, "UnknownField", "spec.trainer.lora_rnk", "did you mean 'lora_rank'?"),
        ({"trainer": {"zzz": 8}}, "UnknownField", "spec.trainer.zzz", "the trainer has no such field"),
        ({"config": {"total_steps": 10**20}}, "OutOfBounds", "spec.config.total_steps", "at most 10000000"),
        ({"config": {"total_steps": 1e21}}, "OutOfBounds", "spec.config.total_steps", "at most 10000000"),
        ({"config": {"color": 10**20}}, "OutOfBounds", "spec.config.color", "at most 9223372036854775807"),
        ({"config": {"color": -(10**20)}}, "OutOfBounds", "spec.config.color", "at least -9223372036854775808"),
        ({"config": {"group_size": None}}, "WrongType", "spec.config.group_size", "it must be an integer"),
        ({"config": {"color": "green"}}, "WrongType", "spec.config.color", "one of red, blue"),
        (
            {"trainer": {"learning_rate": "4e-5"}},
            "WrongType",
            "spec.trainer.learning_rate",
            "it must be a number or auto$",
        ),
        ({"trainer": {"advantage": "std"}}, "WrongType", "spec.trainer.advantage", "one of group_centered"),
        ({"trainer": {"seed": -1}}, "OutOfBounds", "spec.trainer.seed", "at least 0"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, field)
    assert re.search(hint, refusal.hint), refusal.hint


def test_a_locked_refusal_names_both_values() -> None:
    [refusal] = check({"config": {"max_token_length": 128}})
    assert (refusal.given, refusal.locked, refusal.allowed) == (128, 64, 64)


def test_an_environment_with_unknown_fields_takes_any_field() -> None:
    catalog = Catalog.model_validate({"environments": [{"name": "toy"}]})
    numbers = {"total_steps": 1, "group_size": 2, "batch_size": 2, "max_token_length": 1, "tokenizer_name": "t"}
    assert check({"config": {**numbers, "color": 3}}, make_runtime(), catalog) == ()


def test_the_default_runtime_refuses_what_the_platform_always_locked() -> None:
    run = make_run(config={"total_steps": 40}, trainer={"learning_rate": 1e-3})
    assert [(r.field, r.locked) for r in check_run(run, inputs_of(run, DEFAULT))] == [
        ("spec.config.total_steps", 2500),
        ("spec.trainer.learning_rate", 4e-5),
    ]


# --- limits -----------------------------------------------------------------------------------------------------------
def problem(value: Any, **limits: Any) -> str | None:
    return constraint_problem(value, EnvironmentField(name="x", type="Any", **limits))


KEPT: list[tuple[Any, dict[str, Any]]] = [
    (0, {"minimum": 0}),
    (0.5, {"exclusive_minimum": 0, "exclusive_maximum": 1}),
    (32000, {"minimum": 1024, "maximum": 32000}),
    (None, {"minimum": 1, "min_length": 1, "pattern": "a"}),
    ("a", {"minimum": 9, "min_length": 1, "max_length": 1}),
    (True, {"minimum": 9}),
    ([1, 2], {"min_length": 2, "pattern": "a"}),
    ({"a": 1}, {"max_length": 1}),
    ("bab", {"pattern": "a"}),  # searched, as pydantic does
    ("x", {"pattern": "("}),  # no pattern at all: the environment's own class decides
]


@pytest.mark.parametrize(("value", "limits"), KEPT)
def test_kept(value: Any, limits: dict[str, Any]) -> None:
    assert problem(value, **limits) is None


BROKEN: list[tuple[Any, dict[str, Any], str]] = [
    (-1, {"minimum": 0}, "at least 0"),
    (0, {"exclusive_minimum": 0}, "above 0"),
    (3, {"minimum": 1024, "maximum": 32000}, "at least 1024 and at most 32000"),
    (1048577, {"maximum": 1048576}, "at most 1048576"),
    (1, {"exclusive_maximum": 0.5}, "below 0.5"),
    ("", {"min_length": 1}, "at least 1 characters long"),
    ([1, 2], {"max_length": 1}, "at most 1 entries long"),
    ("b", {"pattern": "^a+$"}, "a string that matches ^a+$"),
    ("a\n", {"pattern": "^a$"}, "a string that matches ^a$"),  # as pydantic's engine has it, not Python's
]


@pytest.mark.parametrize(("value", "limits", "allowed"), BROKEN)
def test_broken(value: Any, limits: dict[str, Any], allowed: str) -> None:
    assert problem(value, **limits) == allowed


def test_a_pattern_with_catastrophic_backtracking_takes_no_time() -> None:
    before = time.perf_counter()
    assert problem("a" * 30_000, pattern="^(a+)+$") is None
    assert problem("a" * 30_000 + "!", pattern="^(a+)+$") is not None
    assert time.perf_counter() - before < 20


def test_a_refusal_says_what_is_allowed() -> None:
    catalog = catalog_of({"name": "share", "type": "float", "minimum": 0, "maximum": 1})
    [refusal] = check({"config": {"share": 2}}, catalog=catalog)
    assert (refusal.code, refusal.field, refusal.allowed) == (
        "OutOfBounds",
        "spec.config.share",
        "at least 0 and at most 1",
    )
    assert refusal.hint == "it must be at least 0 and at most 1"


FIELDS = CATALOG.named("sort_digits").fields


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_bundled_environments_own_values_are_accepted(field: EnvironmentField) -> None:
    assert not type_problem(field.default, field.type, field.choices)
    assert not constraint_problem(field.default, field)


# --- types ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, "typing.Optional[str]"),
        (1, "Union[str, int]"),
        ([1, None], "List[Optional[int]]"),
        ({"1": "a"}, "dict[int, str]"),
        (-1, "Literal[-1, 1]"),
        ("x", "Literal[Color.RED]"),
        ([1, "x"], "list"),
        ({"a": []}, "Dict[str, Any]"),
        (1, "Annotated[int, Field(gt=0)]"),
        ("STOP_TRAIN", "EvalHandlingEnum"),  # a class of the environment's own: it decides at its start
        (1, "not an ( annotation"),
        (1, ""),
        (1, "Any"),
        (1, "'ForwardReference'"),
    ],
)
def test_fits(value: Any, annotation: str) -> None:
    """What the comparison with pydantic below does not try."""
    assert type_problem(value, annotation) is None


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("8", "int", "an integer"),
        (1, "bool", "true or false"),
        (1, "str", "a string"),
        ("8", "int | None", "an integer or null"),
        (1.5, "Union[str, int]", "a string or an integer"),
        ("c", "Literal['a', 'b']", "one of a, b"),
        ("c", "float | Literal['auto']", "a number or auto"),
        (True, "Literal[1, 2]", "one of 1, 2"),
        ([1, "x"], "list[int]", "a list, each item an integer"),
        ({"a": "x"}, "dict[str, float]", "a mapping, each value a number"),
        ([1], "tuple[int, str]", "a list, each item an integer"),
        ({"a": "x"}, "dict[int, str]", "a mapping, each value a string"),
        ([], "dict", "a mapping"),
    ],
)
def test_does_not_fit(value: Any, annotation: str, expected: str) -> None:
    assert type_problem(value, annotation) == expected


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("green", "Color", "one of red, blue"),
        (None, "Color", "one of red, blue"),
        (1, "Color | None", "one of red, blue or null"),
        (["red", 1], "list[Color]", "a list, each item one of red, blue"),
    ],
)
def test_other_values_are_refused(value: Any, annotation: str, expected: str) -> None:
    assert type_problem(value, annotation, ["red", "blue"]) == expected


simple_types = st.sampled_from(
    ["int", "float", "str", "bool", "None", "Any", "Color", "Literal['a', 'red']", "Literal[0, 1]", "Literal[True]"]
)
annotations = st.recursive(
    simple_types,
    lambda inner: st.one_of(
        inner.map("list[{}]".format),
        inner.map("Optional[{}]".format),
        inner.map("tuple[{}, ...]".format),
        inner.map("dict[str, {}]".format),
        st.builds("Union[{}, {}]".format, inner, inner),
        st.builds("tuple[{}, {}]".format, inner, inner),
    ),
    max_leaves=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2).filter(lambda x: not x.is_integer())
    | st.sampled_from(["a", "red", "", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "1"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


class Color(Enum):
    RED = "red"
    ONE = 1


def has_boolean(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) or any(map(has_boolean, inner))


@settings(max_examples=500, deadline=None)
@given(json_values, annotations)
def test_the_environment_container_agrees(value: Any, annotation: str) -> None:
    """Both ways, but for one rule of ours: true and false are never taken for the 1 and 0 of an enum or Literal."""
    adapter = TypeAdapter[Any](eval(annotation, {**vars(typing), "Color": Color}))
    ours = type_problem(value, annotation, ["red", 1]) is None
    try:
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        assert not ours
    else:
        assert ours or has_boolean(value) or "True" in annotation


@given(
    st.text(alphabet="intsrflo|[],. NoeLil'\"Optal(){}*"), st.none() | st.integers() | st.text() | st.lists(st.none())
)
def test_any_annotation_is_checked_without_failing(annotation: str, value: Any) -> None:
    type_problem(value, annotation)
