"""From `--set` to the runs of a sweep."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.samples import make_run

from rl_operator.api.names import EXPERIMENT_LABEL, MAX_RUN_NAME_LENGTH, STARTED_AS_ANNOTATION, SWEPT_ANNOTATION
from rl_operator.documents.parse import DocumentError
from rl_operator.experiments.grid import (
    Axis,
    belongs_to_trainer,
    parse_axis,
    points_of,
    run_names,
    runs_of,
    swept_values,
    with_values,
)
from rl_operator.operator_errors import RefusedError


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("trainer.learning_rate=1e-4,3e-4", "trainer.learning_rate", [1e-4, 3e-4]),
        ("spec.config.group_size=4, 8", "config.group_size", [4, 8]),
        ("config.group_size=8.0", "config.group_size", [8]),  # as the API server stores it
        ("environment=sort_digits,own/mine", "environment", ["sort_digits", "own/mine"]),
        ("config.thinking_mode=true,off", "config.thinking_mode", [True, False]),
        ('config.system_prompt="a, b",null', "config.system_prompt", ["a, b", None]),
        ("config.command=[python, a.py],[python, b.py]", "config.command", [["python", "a.py"], ["python", "b.py"]]),
        ("config.taskset.size=1,2", "config.taskset.size", [1, 2]),
        ("startFrom.run=first,second", "startFrom.run", ["first", "second"]),
        ("config.name=a=b", "config.name", ["a=b"]),
    ],
)
def test_values_are_read_as_in_a_file(text: str, field: str, values: list[Any]) -> None:
    axis = parse_axis(text)
    assert (axis.field, list(axis.values)) == (field, values)
    assert [type(value) for value in axis.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trainer.seed", "it must be FIELD=VALUE"),
        ("trainer.seed=", "it must be FIELD=VALUE"),
        ("=1", "it must be FIELD=VALUE"),
        ("learning_rate=1e-4", "did you mean 'trainer.learning_rate'"),
        ("environmnt=a,b", "did you mean 'environment'"),
        ("nothing.like.it=1", "it must be config.FIELD, trainer.FIELD, or one of"),
        ("suspend=true,false", "has no such field"),
        ("config=1", "must name a field of it"),
        ("trainer..seed=1", "has no such field"),
        ("config.a\x1b[31m=1", "has no such field"),
        ("config.a=[1", "not readable YAML"),
        ("config.a=1],[2", "not readable YAML"),
        ("config.a=017", "octal"),
        ("trainer.seed=1,2,1.0", "has 1 twice"),
    ],
)
def test_what_is_no_axis_is_refused(text: str, said: str) -> None:
    with pytest.raises(RefusedError, match="--set") as refused:
        parse_axis(text)
    assert said in str(refused.value)


def test_every_combination_once_and_the_last_axis_varies_fastest() -> None:
    points = points_of([Axis("trainer.learning_rate", (1, 2)), Axis("trainer.seed", (0, 1, 2))])
    assert [tuple(point.values()) for point in points] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([], "needs --set"),
        ([Axis("trainer.seed", tuple(range(65)))], r"the grid has 65 runs \(65\), and 64 are allowed"),
        ([Axis("trainer.seed", tuple(range(9))), Axis("trainer.loss", tuple("abcdefgh"))], r"72 runs \(9 × 8\)"),
        ([Axis("trainer.seed", (1,)), Axis("trainer.seed", (2,))], "trainer.seed: it is given twice"),
        ([Axis("config.a", ({"b": 1},)), Axis("config.a.b", (2,))], "config.a.b: it is given twice"),
    ],
)
def test_what_is_no_grid_is_refused(axes: list[Axis], said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        points_of(axes)


def test_a_larger_grid_is_allowed_on_request() -> None:
    assert len(points_of([Axis("trainer.seed", tuple(range(65)))], most=65)) == 65


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        (
            [Axis("trainer.learning_rate", (1e-4, 0.001)), Axis("trainer.seed", (0, 1))],
            ["x-lr1e-4-seed0", "x-lr1e-4-seed1", "x-lr1e-3-seed0", "x-lr1e-3-seed1"],
        ),
        ([Axis("config.inference_weight", (0.5, 1.25))], ["x-iw0p5", "x-iw1p25"]),
        ([Axis("trainer.lora_rank", (8, 16))], ["x-rank8", "x-rank16"]),  # lr is the learning rate
        ([Axis("trainer.seed", (-1, 3_000_000))], ["x-seed-1", "x-seed3e6"]),
        ([Axis("trainer.loss", ("ppo", "importance_sampling"))], ["x-loss-ppo", "x-loss-importance-sampling"]),
        ([Axis("config.thinking_mode", (True, False))], ["x-tm-true", "x-tm-false"]),
        ([Axis("trainer.lora_rank", (8,)), Axis("trainer.seed", (1, 2))], ["x-seed1", "x-seed2"]),  # only what differs
        ([Axis("environment", ("own/a", "own-a"))], ["x-1", "x-2"]),  # alike as words
        ([Axis("config.command", (["a"], ["b"]))], ["x-1", "x-2"]),
        ([Axis("config.system_prompt", ("long " * 20, "short"))], ["x-1", "x-2"]),
        ([Axis("trainer.seed", (4,))], ["x-1"]),
    ],
)
def test_names_are_short_words_or_numbers(axes: list[Axis], names: list[str]) -> None:
    assert list(run_names("x", points_of(axes))) == names


def test_a_name_without_room_for_a_number_is_refused() -> None:
    points = points_of([Axis("trainer.seed", tuple(range(10)))])
    assert run_names("x" * 49, points)[-1] == "x" * 49 + "-10"
    with pytest.raises(RefusedError, match=f"at most {MAX_RUN_NAME_LENGTH}.*--name"):
        run_names("x" * 50, points)


def test_each_run_has_its_values_and_says_so() -> None:
    base = make_run(config={"group_size": 8}, trainer={"learning_rate": 1e-3})
    marked = base.metadata.with_changes(labels={"team": "a"}, annotations={"kept": "yes", STARTED_AS_ANNOTATION: "x"})
    points = points_of([Axis("trainer.seed", (0, 1)), Axis("config.total_steps", (7,))])
    first, second = runs_of(base.with_changes(metadata=marked), "trial", points)
    assert (first.metadata.name, second.metadata.name) == ("trial-seed0", "trial-seed1")
    assert second.spec.trainer == {"learning_rate": 1e-3, "seed": 1}
    assert second.spec.config == {"group_size": 8, "total_steps": 7}
    assert second.metadata.labels == {"team": "a", EXPERIMENT_LABEL: "trial"}
    assert second.metadata.annotations["kept"] == "yes"
    assert STARTED_AS_ANNOTATION not in second.metadata.annotations
    assert swept_values(second.metadata.annotations) == {"trainer.seed": 1, "config.total_steps": 7}


def test_a_value_that_does_not_fit_the_kind_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"spec\.priority"):
        runs_of(make_run(), "trial", points_of([Axis("priority", ("high",))]))


def test_values_replace_what_was_there() -> None:
    spec = {"config": {"weights": {"a": 1}, "taskset": {"size": 1, "level": "easy"}}, "environment": "x"}
    point = {"config.weights": {"b": 2}, "config.taskset.size": 5, "environment": "y", "startFrom.run": "first"}
    assert with_values(spec, point) == {
        "config": {"weights": {"b": 2}, "taskset": {"size": 5, "level": "easy"}},
        "environment": "y",
        "startFrom": {"run": "first"},
    }
    assert spec["config"] == {"weights": {"a": 1}, "taskset": {"size": 1, "level": "easy"}}, "the file's spec is kept"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (json.dumps({"trainer.seed": 1}), {"trainer.seed": 1}),
        ("{", {}),
        ("[1]", {}),
        (json.dumps({"\x1b[31mred": 1, "trainer.seed": 2}), {"trainer.seed": 2}),
    ],
)
def test_an_annotation_of_somebody_else_does_no_harm(text: str, values: dict[str, Any]) -> None:
    assert swept_values({SWEPT_ANNOTATION: text}) == values
    assert swept_values({}) == {}


def test_a_field_of_the_trainer_in_the_config_is_told() -> None:
    assert "--set trainer.learning_rate=" in belongs_to_trainer(["spec.config.learning_rate"])
    assert belongs_to_trainer(["spec.config.nothing", "spec.trainer.learning_rate"]) == ""
