"""Fields inside of a mapping of `spec.config`: every rule that exists for fields holds for them, too."""

from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import inputs_of, make_run, make_runtime, tasksets

from rl_operator.api import hints
from rl_operator.api.runtime import Runtime
from rl_operator.check.runtime_rules import check_runtime
from rl_operator.render.manifests import render_config

OPEN = make_runtime()
LOCKS = make_runtime(
    locked={"env": {"taskset": {"level": "easy"}}},
    bounds={"env": {"taskset.size": {"max": 500}}},
    defaults={"env": {"taskset": {"size": 50}}},
)


def refusals(config: dict[str, Any], runtime: Runtime = OPEN) -> list[tuple[str, str]]:
    found = check({"environment": "verifiers/sorting", "config": config}, runtime, tasksets())
    return [(refusal.code, refusal.sentence) for refusal in found]


NESTED = 'the field is nested: write it as {"taskset": {"size": …}}'
LACKS = "environment 'verifiers/sorting' has no such field; did you mean"


@pytest.mark.parametrize(
    ("config", "code", "sentence"),
    [
        ({"taskset": {"sizes": 3}}, "UnknownField", f".taskset.sizes is 3: {LACKS} 'taskset.size'?"),
        ({"size": 3}, "UnknownField", f".size is 3: {LACKS} 'taskset.size'?"),
        ({"taskset": {"total_steps": 3}}, "UnknownField", f".taskset.total_steps is 3: {LACKS} 'total_steps'?"),
        ({"taskset": {"size": "3"}}, "WrongType", '.taskset.size is "3": it must be an integer'),
        ({"taskset": {"level": "odd"}}, "WrongType", '.taskset.level is "odd": it must be one of easy, hard'),
        ({"taskset": {"size": 0}}, "OutOfBounds", ".taskset.size is 0: it must be at least 1"),
        ({"taskset": 3}, "WrongType", '.taskset is 3: it must be a mapping of its fields, like {"size": …}'),
        ({"taskset.size": 3}, "UnknownField", '["taskset.size"] is 3: ' + NESTED),
        ({"taskset": {"level": "sk-" + "a" * 20}}, "WiredField", f".taskset.level: {hints.KEY_IN_RUN}"),
    ],
    ids=["unknown", "outside", "inside", "type", "choice", "limit", "no mapping", "dotted", "key"],
)
def test_what_no_runtime_allows(config: dict[str, Any], code: str, sentence: str) -> None:
    assert refusals(config) == [(code, f"spec.config{sentence}")]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"taskset": {"level": "hard"}}, 'spec.config.taskset.level is "hard": ' + hints.LOCKED % ("lab", '"easy"')),
        ({"taskset": {"size": 501}}, "spec.config.taskset.size is 501: runtime 'lab' allows at most 500"),
    ],
    ids=["locked", "bound"],
)
def test_what_this_runtime_does_not_allow(config: dict[str, Any], sentence: str) -> None:
    assert [said for _, said in refusals(config, LOCKS)] == [sentence]


def test_a_lock_of_one_field_leaves_the_others() -> None:
    assert not refusals({"taskset": {"level": "easy", "size": 3}}, LOCKS)


def test_a_bound_holds_for_the_environments_own_default() -> None:
    tight = make_runtime(bounds={"env": {"taskset.size": {"max": 20}}})
    assert refusals({}, tight) == [
        ("OutOfBounds", "spec.config.taskset.size is 100: runtime 'lab' allows at most 20"),
    ]


def rendered(environment: str, runtime: Runtime = LOCKS, **config: Any) -> Any:
    run = make_run(environment=environment, config=config)
    return render_config(run, inputs_of(run, runtime, tasksets()))["env"]


def test_values_are_merged_field_by_field_and_rendered_nested() -> None:
    assert rendered("verifiers/sorting")["taskset"] == {"level": "easy", "size": 50}
    assert rendered("verifiers/sorting", taskset={"size": 3})["taskset"] == {"level": "easy", "size": 3}
    assert list(rendered("verifiers/sorting")) == sorted(rendered("verifiers/sorting"))


def test_a_runtimes_values_for_fields_that_an_environment_lacks_are_left_out() -> None:
    assert "taskset" not in rendered("verifiers/poker") | rendered("toy")


def test_a_field_that_is_a_mapping_stays_whole() -> None:
    runtime = make_runtime(defaults={"env": {"tools": {"a": 1}, "taskset": {"weights": {"a": 1.5}}}})
    env = rendered("verifiers/sorting", runtime, tools={"b": 2}, taskset={"weights": {"b": 0.5}})
    assert (env["tools"], env["taskset"]) == ({"b": 2}, {"weights": {"b": 0.5}})
    assert refusals({"tools": {"b": "2"}})[0][1].startswith('spec.config.tools is {"b":"2"}')


@pytest.mark.parametrize("part", ["locked", "defaults"])
def test_a_runtime_against_itself(part: str) -> None:
    outside = make_runtime(**{part: {"env": {"taskset": {"size": 9}}}, "bounds": {"env": {"taskset.size": {"max": 5}}}})
    dotted = make_runtime(**{part: {"env": {"taskset.size": 9}}})
    assert [fault.sentence for fault in check_runtime(outside)] == [
        f"spec.{part}.env.taskset.size is 9: runtime 'lab' allows at most 5"
    ]
    assert [fault.sentence for fault in check_runtime(dotted)] == [f'spec.{part}.env["taskset.size"]: {NESTED}']
