"""Rules over settings together: one row each, by the names of a run and of a config file."""

import pytest

from rl_contract.consistency import CONFIG_FILE, CONFIG_RULES, REQUEST_RULES, Names, inconsistencies
from rl_contract.setting_rows import values_of
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings

RULES = (*CONFIG_RULES, *REQUEST_RULES)
ENV = SharedEnvSection(
    total_steps=40, group_size=8, batch_size=32, tokenizer_name="t", max_token_length=64
).model_dump()
TINKER = values_of(TrainerSettings())


def broken(**given) -> list[str]:
    env = ENV | {name: value for name, value in given.items() if name not in TINKER}
    trainer = TINKER | {name: value for name, value in given.items() if name in TINKER}
    return [each.sentence(CONFIG_FILE) for each in inconsistencies(env, trainer, RULES)]


def test_defaults_agree() -> None:
    assert broken() == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"batch_size": 12}, "env.batch_size is 12: a batch holds whole groups"),
        (
            {"early_stopping.stop_at": 0.9, "steps_per_eval": 0},
            "tinker.early_stopping.stop_at is 0.9: the run has no evaluations",
        ),
        (
            {"early_stopping.patience": 2, "steps_per_eval": 0},
            "tinker.early_stopping.patience is 2: the run has no evaluations",
        ),
        ({"num_substeps": 5}, "tinker.num_substeps is 5: a batch holds 4 groups"),
        (
            dict.fromkeys(("train_attn", "train_mlp", "train_unembed"), False),
            "tinker.train_attn is False: train_attn,",
        ),
        ({"group_size": 1}, "env.group_size is 1: an advantage (group_centered) compares"),
        ({"max_token_length": 9001}, "env.max_token_length is 9001: rollouts of up to 9001 tokens would be dropped"),
    ],
)
def test_what_does_not_fit_is_named(given, field) -> None:
    (sentence,) = broken(**given)
    assert sentence.startswith(field)


@pytest.mark.parametrize(
    "given",
    [
        {"batch_size": "32"},
        {"group_size": None},
        {"num_substeps": "many"},
        {"max_token_length": True, "max_token_trainer_length": 0},
        {"group_size": 1, "ensure_scores_are_not_same": False},
    ],
)
def test_a_value_that_is_wrong_by_itself_breaks_no_rule(given) -> None:
    assert broken(**given) == []


def test_a_hint_names_fields_where_its_reader_has_set_them() -> None:
    (found,) = inconsistencies(ENV, TINKER | {"num_substeps": 5}, RULES)
    assert found.told(Names(env="spec.config", trainer="spec.trainer")).endswith("or raise spec.config.batch_size")
