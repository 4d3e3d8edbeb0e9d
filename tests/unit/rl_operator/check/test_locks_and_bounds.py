import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import DEFAULT, inputs_of, make_run, make_runtime

from rl_operator.api.catalog import Catalog
from rl_operator.check import check_run


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"config": {"max_token_length": 128}}, "LockedField", "spec.config.max_token_length", "locks it to 64"),
        ({"config": {"use_wandb": 1}}, "LockedField", "spec.config.use_wandb", "locks it to true"),
        ({"trainer": {"lora_rank": 8}}, "LockedField", "spec.trainer.lora_rank", "runtime 'lab' locks it to 16"),
        ({"trainer": {"loss": "cispo"}}, "LockedField", "spec.trainer.loss", 'locks it to "ppo"'),
        ({"config": {"rollout_server_url": "http://x"}}, "WiredField", "spec.config.rollout_server_url", "addresses"),
        ({"config": {"api_key": "x"}}, "WiredField", "spec.config.api_key", "never write a key into a run"),
        ({"config": {"color": "sk-or-v1-0123"}}, "WiredField", "spec.config.color", "looks like a key"),
        ({"trainer": {"checkpoint_dir": "/x"}}, "WiredField", "spec.trainer.checkpoint_dir", "leave the field out"),
        ({"trainer": {"wandb_project": "x"}}, "WiredField", "spec.trainer.wandb_project", "spec.wandb.project"),
        ({"config": {"colr": "red"}}, "UnknownField", "spec.config.colr", "did you mean 'color'?"),
        ({"trainer": {"lora_rnk": 8}}, "UnknownField", "spec.trainer.lora_rnk", "did you mean 'lora_rank'?"),
        ({"trainer": {"zzz": 8}}, "UnknownField", "spec.trainer.zzz", "the trainer has no such field"),
        ({"config": {"total_steps": 10**20}}, "OutOfBounds", "spec.config.total_steps", "at most 10000000"),
        ({"config": {"total_steps": 1e21}}, "OutOfBounds", "spec.config.total_steps", "at most 10000000"),
        ({"config": {"color": 10**20}}, "OutOfBounds", "spec.config.color", "at most 9223372036854775807"),
        ({"config": {"color": -(10**20)}}, "OutOfBounds", "spec.config.color", "at least -9223372036854775808"),
        ({"trainer": {"learning_rate": 1e308}}, "OutOfBounds", "spec.trainer.learning_rate", "at most 1"),
        ({"config": {"group_size": "8"}}, "WrongType", "spec.config.group_size", "it must be an integer"),
        ({"config": {"group_size": None}}, "WrongType", "spec.config.group_size", "it must be an integer"),
        ({"config": {"color": "green"}}, "WrongType", "spec.config.color", "one of red, blue"),
        (
            {"trainer": {"learning_rate": "4e-5"}},
            "WrongType",
            "spec.trainer.learning_rate",
            "it must be a number or auto$",
        ),
        (
            {"trainer": {"learning_rate": "auto"}},
            "OutOfBounds",
            "spec.trainer.learning_rate",
            "allows at most 0.01, and what auto comes to is known only once the run has started: give a number$",
        ),
        ({"trainer": {"advantage": "std"}}, "WrongType", "spec.trainer.advantage", "one of group_centered"),
        ({"config": {"total_steps": 101}}, "OutOfBounds", "spec.config.total_steps", "at least 1 and at most 100"),
        ({"trainer": {"learning_rate": 0.1}}, "OutOfBounds", "spec.trainer.learning_rate", "at most 0.01"),
        ({"trainer": {"learning_rate": 0}}, "OutOfBounds", "spec.trainer.learning_rate", "above 0"),
        ({"trainer": {"seed": -1}}, "OutOfBounds", "spec.trainer.seed", "at least 0"),
        ({"config": {"group_size": 0}}, "OutOfBounds", "spec.config.group_size", "at least 1"),
        ({"config": {"max_batches_offpolicy": 0}}, "OutOfBounds", "spec.config.max_batches_offpolicy", "at least 1"),
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
