"""What a run may set: every value from one table."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, make_runtime, tasksets

from rl_operator.targets.inputs.parameters import SettableField, fields_of


def fields_in(runtime: Any, **field: Any) -> dict[str, SettableField]:
    toy = catalog_of({"name": "knob", "type": "int", "default": 3, **field}).named("toy")
    return {f"{found.section}.{found.name}": found for found in fields_of(toy, runtime)}


def test_editable_ones_come_first_and_wired_ones_are_left_out() -> None:
    fields = fields_of(CATALOG.named("sort_digits"), DEFAULT)
    locks = [field.locked for field in fields]
    assert locks == sorted(locks)
    assert {"config.rollout_server_url", "trainer.wandb_project"}.isdisjoint(f"{f.section}.{f.name}" for f in fields)
    locked = {f.name: f.default for f in fields if f.locked}
    assert (locked["lora_rank"], locked["tokenizer_name"]) == (32, "Qwen/Qwen3-8B")


def test_the_default_is_the_effective_value() -> None:
    fields = {field.name: field for field in fields_of(CATALOG.named("sort_digits"), TINY)}
    assert fields["max_token_length"].default == 64  # the runtime's; the environment says 32
    assert fields["eval_items"].default == 250  # the environment's own


@pytest.mark.parametrize(
    ("field", "runtime", "allowed"),
    [
        pytest.param({}, {}, "", id="anything"),
        pytest.param({"minimum": 1, "maximum": 9}, {}, "at least 1, at most 9", id="the source's"),
        pytest.param({"exclusive_minimum": 0, "exclusive_maximum": 0.5}, {}, "above 0, below 0.5", id="exclusive"),
        pytest.param(
            {"minimum": 1},
            {"bounds": {"env": {"knob": {"min": 2, "max": 2500000}}}},
            "at least 2, at most 2500000",
            id="tightest",
        ),
        pytest.param(
            {"exclusive_minimum": 2}, {"bounds": {"env": {"knob": {"min": 2}}}}, "above 2", id="exclusive is tighter"
        ),
        pytest.param({"type": "Literal['a', 'b']", "default": "a"}, {}, "a, b", id="literal"),
        pytest.param({"type": "Mode", "default": "x", "choices": ["x", "y"]}, {}, "x, y", id="enum"),
        pytest.param(
            {"type": "str", "min_length": 1, "pattern": "^a"}, {}, "length at least 1, matching ^a", id="text"
        ),
    ],
)
def test_allowed_values(field: dict[str, Any], runtime: dict[str, Any], allowed: str) -> None:
    assert fields_in(make_runtime(**runtime), **field)["config.knob"].allowed == allowed


def test_the_trainers_own_limits_and_choices() -> None:
    fields = fields_in(make_runtime())
    assert fields["trainer.learning_rate"].allowed == "above 0, at most 1, or auto"
    loss = fields["trainer.loss"]
    assert (loss.type, loss.allowed) == ("choice", "importance_sampling, ppo, cispo, gspo, dro")
    assert fields["config.total_steps"].allowed == "at least 1, at most 10000000"


def test_the_wire_form_holds_everything() -> None:
    runtime = make_runtime(locked={"env": {"knob": 5}}, bounds={"env": {"batch_size": {"max": 9}}})
    fields = fields_in(runtime, maximum=7, description="turn it")
    knob = fields["config.knob"].to_wire()
    assert (knob["locked"], knob["default"], knob["maximum"], knob["path"]) == (5, 5, 7, "spec.config.knob")
    assert fields["config.batch_size"].to_wire()["bounds"] == {"max": 9}


def test_a_field_inside_of_a_mapping() -> None:
    runtime = make_runtime(
        locked={"env": {"taskset": {"level": "hard"}}},
        bounds={"env": {"taskset.size": {"max": 500}}},
        defaults={"env": {"taskset": {"size": 50}}},
    )
    fields = {field.name: field for field in fields_of(tasksets().chosen("verifiers/sorting"), runtime)}
    size, level = fields["taskset.size"], fields["taskset.level"]
    assert (size.default, size.allowed, size.locked) == (50, "at least 1, at most 500", False)
    assert (level.default, level.locked) == ("hard", True)
    assert size.place == ("config", "taskset", "size")
    assert size.to_wire()["path"] == "spec.config.taskset.size"
