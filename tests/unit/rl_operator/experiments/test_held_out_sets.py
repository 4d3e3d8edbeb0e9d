"""Which settings decide whether two held-out figures compare."""

from typing import Any

import pytest
from tests.unit.rl_operator.samples import CATALOG

from rl_operator.experiments.held_out_sets import TRAINING_ONLY, fingerprint, held_out_differences

BASE = {"environment": "sort_digits", "runtime": "tiny", "config.eval_items": 250, "tinker.seed": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": "default"},
        {"tinker.seed": 1},
        {"tinker.learning_rate": 1e-4},
        {"config.total_steps": 7},
        {"config.steps_per_eval": 5},
        {"config.item_seed": 3},  # the order in which items are trained
        {"config.eval_items": 250.0},
        {"model": "another"},
    ],
)
def test_what_only_training_sees_leaves_the_set_alone(change: dict[str, Any]) -> None:
    assert fingerprint(BASE | change) == fingerprint(BASE)
    assert held_out_differences(BASE, BASE | change) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"environment": "gsm_synthetic"},
        {"config.eval_items": 100},
        {"config.eval_samples": 4},
        {"config.max_token_length": 64},
        {"config.seed": 1},
        {"config.an_own_field": "x"},
        {"tinker.eval_metric": "eval/score"},
        {"files": "0123456789ab"},
    ],
)
def test_what_is_asked_or_counted_makes_another_set(change: dict[str, Any]) -> None:
    assert fingerprint(BASE | change) != fingerprint(BASE)
    assert held_out_differences(BASE, BASE | change) == tuple(change)


def test_true_is_not_one() -> None:
    assert held_out_differences({"config.x": True}, {"config.x": 1}) == ("config.x",)


def test_the_table_names_fields_that_exist() -> None:
    fields = {f"config.{name}" for each in CATALOG.environments for name in each.fields_by_name}
    fields |= {f"config.{field.name}" for family in CATALOG.families for field in family.fields}
    assert fields >= TRAINING_ONLY
