import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import catalog_of, make_runtime


@pytest.mark.parametrize(
    ("spec", "field", "hint"),
    [
        ({"config": {"group_size": 16}}, "spec.config.batch_size", "groups of 16 .* 16, say"),
        (
            {"trainer": {"max_token_trainer_length": 63}},
            "spec.config.max_token_length",
            "up to 64 tokens would be dropped, because the trainer takes 63",
        ),
    ],
)
def test_refused(spec: dict[str, Any], field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == ("Inconsistent", field)
    assert re.search(hint, refusal.hint), refusal.hint


EVALUATED = catalog_of({"name": "steps_per_eval", "type": "int", "default": 100})


@pytest.mark.parametrize(("name", "value"), [("stop_at", 0.9), ("patience", 2)])
def test_without_evaluations_nothing_can_end_a_run(name: str, value: float) -> None:
    [refusal] = check(
        {"config": {"steps_per_eval": 0}, "trainer": {"early_stopping": {name: value}}}, catalog=EVALUATED
    )
    assert (refusal.code, refusal.field, refusal.given) == (
        "Inconsistent",
        f"spec.trainer.early_stopping.{name}",
        value,
    )
    assert f"set spec.config.steps_per_eval to 1 or more, or leave early_stopping.{name} out" in refusal.hint
    assert check({"trainer": {"early_stopping": {name: value}}}, catalog=EVALUATED) == ()


@pytest.mark.parametrize("trainer", [{"early_stopping": {"stop_at": None}}, {"early_stopping": {"patience": 0}}, {}])
def test_a_run_without_evaluations_may_say_that_nothing_ends_it(trainer: dict[str, Any]) -> None:
    assert check({"config": {"steps_per_eval": 0}, "trainer": trainer}, catalog=EVALUATED) == ()


def test_bounds_hold_for_the_trainers_own_defaults() -> None:
    runtime = make_runtime(bounds={"trainer": {"lora_rank": {"max": 16}}})
    [refusal] = check({}, runtime)
    assert (refusal.code, refusal.field, refusal.given) == ("OutOfBounds", "spec.trainer.lora_rank", 32)
    assert check({"trainer": {"lora_rank": 16}}, runtime) == ()


def test_bounds_hold_for_values_that_the_run_does_not_set() -> None:
    catalog = catalog_of({"name": "total_steps", "type": "int", "default": 5000})
    [refusal] = check({}, catalog=catalog)
    assert (refusal.code, refusal.field, refusal.given) == ("OutOfBounds", "spec.config.total_steps", 5000)


@pytest.mark.parametrize("name", ["total_steps", "batch_size", "group_size", "max_token_length"])
def test_a_number_that_both_sides_need_must_be_set_somewhere(name: str) -> None:
    catalog = catalog_of({"name": name, "type": "int", "default": -1})
    [refusal] = check({}, make_runtime(), catalog)
    assert (refusal.code, refusal.field) == ("Inconsistent", f"spec.config.{name}")
    assert "neither the environment nor the runtime says one" in refusal.hint
