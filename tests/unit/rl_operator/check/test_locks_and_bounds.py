"""Where fields' refusals end and values begin; what is said of usual ones: tests/data/refusals.yaml."""

import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import DEFAULT, inputs_of, make_run, make_runtime

from rl_operator.api.catalog import Catalog
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
