from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOGUE, DEFAULT, TINY, catalogue_of, make_run, make_runtime

from rl_operator.api.catalogue import Catalogue
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime
from rl_operator.check import check_run, runtime_not_found

LAB = make_runtime(
    locked={"env": {"max_token_length": 64, "use_wandb": True}, "tinker": {"lora_rank": 16, "loss": "ppo"}},
    bounds={"env": {"total_steps": {"min": 1, "max": 100}}, "tinker": {"learning_rate": {"max": 0.01}}},
    limits={"activeDeadlineSeconds": 600},
)
TOY = catalogue_of(
    {"name": "colour", "type": "Literal['red', 'blue']", "default": "red"},
    {"name": "max_batches_offpolicy", "type": "int", "default": 3},
)


def check(spec: dict[str, Any], runtime: Runtime = LAB, catalogue: Catalogue = TOY) -> tuple[Refusal, ...]:
    return check_run(make_run(**{"environment": "toy", **spec}), runtime, catalogue)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"config": {"max_token_length": 64, "colour": "blue", "total_steps": 100}},  # equal to locked; at the bound
        {"config": {"max_token_length": 64.0}},
        {"config": {"use_wandb": True}},  # locked to the same, though this environment does not have it
        {"tinker": {"lora_rank": 16, "learning_rate": 0.01, "backend_deadline_seconds": 5}},
        {"startFrom": {"statePath": "tinker://x/weights/y"}},
        {"activeDeadlineSeconds": 600},
        {"suspend": True},
        {"config": {"batch_size": 9, "group_size": 3}},
    ],
    ids=str,
)
def test_accepted(spec: dict[str, Any]) -> None:
    assert check(spec) == ()


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"config": {"max_token_length": 128}}, "LockedField", "spec.config.max_token_length", "locks it to 64"),
        ({"config": {"use_wandb": 1}}, "LockedField", "spec.config.use_wandb", "locks it to True"),
        ({"tinker": {"lora_rank": 8}}, "LockedField", "spec.tinker.lora_rank", "runtime 'lab' locks it to 16"),
        ({"tinker": {"loss": "cispo"}}, "LockedField", "spec.tinker.loss", "locks it to 'ppo'"),
        ({"config": {"rollout_server_url": "http://x"}}, "WiredField", "spec.config.rollout_server_url", "addresses"),
        ({"config": {"api_key": "x"}}, "WiredField", "spec.config.api_key", "never write a key into a run"),
        ({"config": {"colour": "sk-or-v1-0123"}}, "WiredField", "spec.config.colour", "looks like a key"),
        ({"tinker": {"checkpoint_dir": "/x"}}, "WiredField", "spec.tinker.checkpoint_dir", "leave the field out"),
        ({"tinker": {"wandb_project": "x"}}, "WiredField", "spec.tinker.wandb_project", "spec.wandb.project"),
        ({"config": {"color": "red"}}, "UnknownField", "spec.config.color", "did you mean 'colour'?"),
        ({"tinker": {"lora_rnk": 8}}, "UnknownField", "spec.tinker.lora_rnk", "did you mean 'lora_rank'?"),
        ({"tinker": {"zzz": 8}}, "UnknownField", "spec.tinker.zzz", "the trainer has no such field"),
        ({"config": {"group_size": "8"}}, "WrongType", "spec.config.group_size", "it must be a whole number"),
        ({"config": {"group_size": None}}, "WrongType", "spec.config.group_size", "it must be a whole number"),
        ({"config": {"colour": "green"}}, "WrongType", "spec.config.colour", "one of red, blue"),
        ({"tinker": {"learning_rate": "4e-5"}}, "WrongType", "spec.tinker.learning_rate", "it must be a number"),
        ({"tinker": {"advantage": "std"}}, "WrongType", "spec.tinker.advantage", "one of group_centred"),
        ({"config": {"total_steps": 101}}, "OutOfBounds", "spec.config.total_steps", "at least 1 and at most 100"),
        ({"tinker": {"learning_rate": 0.1}}, "OutOfBounds", "spec.tinker.learning_rate", "at most 0.01"),
        ({"tinker": {"learning_rate": 0}}, "OutOfBounds", "spec.tinker.learning_rate", "above 0"),
        ({"tinker": {"seed": -1}}, "OutOfBounds", "spec.tinker.seed", "at least 0"),
        ({"config": {"group_size": 0}}, "OutOfBounds", "spec.config.group_size", "at least 1"),
        ({"config": {"max_batches_offpolicy": 0}}, "OutOfBounds", "spec.config.max_batches_offpolicy", "at least 1"),
        ({"config": {"batch_size": 10}}, "Inconsistent", "spec.config.batch_size", "10 rollouts .* groups of 4 .* 12"),
        ({"config": {"group_size": 16}}, "Inconsistent", "spec.config.batch_size", "groups of 16 .* 16, say"),
        (
            {"tinker": {"max_token_trainer_length": 63}},
            "Inconsistent",
            "spec.config.max_token_length",
            "up to 64 tokens would be dropped, because the trainer takes 63",
        ),
        ({"startFrom": {}}, "Inconsistent", "spec.startFrom", "exactly one of run and statePath"),
        ({"environment": "toi"}, "UnknownEnvironment", "spec.environment", "did you mean 'toy'.*available: toy"),
        ({"environment": "own/mine"}, "NotSupported", "spec.environment", "bundled ones: toy"),
        ({"environment": "./mine.py"}, "NotSupported", "spec.environment", "rlctl run FILE --local"),
        ({"environment": "own/mine.py"}, "NotSupported", "spec.environment", "not supported yet"),
        ({"environmentReplicas": 2}, "NotSupported", "spec.environmentReplicas", "one environment process"),
        ({"startFrom": {"run": "a"}}, "NotSupported", "spec.startFrom.run", "statePath"),
        (
            {"startFrom": {"statePath": "tinker://x", "withOptimizer": True}},
            "NotSupported",
            "spec.startFrom.withOptimizer",
            "leave the field out",
        ),
        ({"activeDeadlineSeconds": 601}, "OutOfBounds", "spec.activeDeadlineSeconds", "at most 600"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, field)
    with pytest.raises(AssertionError, match=hint):
        raise AssertionError(refusal.hint)


def test_a_locked_refusal_names_both_values() -> None:
    [refusal] = check({"config": {"max_token_length": 128}})
    assert (refusal.given, refusal.locked, refusal.allowed) == (128, 64, 64)


def test_wired_values_are_refused_even_when_they_are_what_a_runtime_locks() -> None:
    runtime = make_runtime(locked={"tinker": {"checkpoint_dir": "./temp/"}})
    [refusal] = check({"tinker": {"checkpoint_dir": "./temp/"}}, runtime)
    assert refusal.code == "WiredField"


def test_all_refusals_come_in_a_stable_order() -> None:
    spec = {
        "environment": "toy",
        "config": {"zzz": 1, "aaa": 2, "group_size": 3},
        "tinker": {"lora_rank": 1},
        "environmentReplicas": 3,
    }
    assert [refusal.field for refusal in check(spec)] == [
        "spec.config.aaa",
        "spec.config.zzz",
        "spec.tinker.lora_rank",
        "spec.config.batch_size",
        "spec.environmentReplicas",
    ]


def test_bounds_hold_for_the_trainers_own_defaults() -> None:
    runtime = make_runtime(bounds={"tinker": {"lora_rank": {"max": 16}}})
    [refusal] = check({}, runtime)
    assert (refusal.code, refusal.field, refusal.given) == ("OutOfBounds", "spec.tinker.lora_rank", 32)
    assert check({"tinker": {"lora_rank": 16}}, runtime) == ()


def test_bounds_hold_for_values_that_the_run_does_not_set() -> None:
    catalogue = catalogue_of({"name": "total_steps", "type": "int", "default": 5000})
    [refusal] = check({}, catalogue=catalogue)
    assert (refusal.code, refusal.field, refusal.given) == ("OutOfBounds", "spec.config.total_steps", 5000)


@pytest.mark.parametrize("name", ["total_steps", "batch_size", "group_size", "max_token_length"])
def test_a_number_that_both_sides_need_must_come_from_somewhere(name: str) -> None:
    catalogue = catalogue_of({"name": name, "type": "int", "default": -1})
    [refusal] = check({}, make_runtime(), catalogue)
    assert (refusal.code, refusal.field) == ("Inconsistent", f"spec.config.{name}")
    assert "neither the environment nor the runtime says one" in refusal.hint


def test_an_environment_whose_fields_are_not_known_takes_any_field() -> None:
    catalogue = Catalogue.model_validate({"environments": [{"name": "toy"}]})
    numbers = {"total_steps": 1, "group_size": 1, "batch_size": 1, "max_token_length": 1, "tokenizer_name": "t"}
    assert check({"config": {**numbers, "colour": 3}}, make_runtime(), catalogue) == ()


def test_a_local_file_in_the_catalogue_is_accepted() -> None:
    [toy] = TOY.environments
    catalogue = Catalogue(environments=(toy.with_changes(name="./mine.py"),))
    assert check({"environment": "./mine.py"}, catalogue=catalogue) == ()


def test_a_runtime_for_some_namespaces_only_is_refused_as_long_as_nothing_enforces_it() -> None:
    [refusal] = check({}, make_runtime(namespaceSelector={"matchLabels": {"team": "a"}}))
    assert (refusal.code, refusal.field) == ("NotSupported", "spec.runtime")


def test_the_default_runtime_refuses_what_the_platform_always_locked() -> None:
    run = make_run(config={"total_steps": 40}, tinker={"learning_rate": 1e-3})
    assert [(r.field, r.locked) for r in check_run(run, DEFAULT, CATALOGUE)] == [
        ("spec.config.total_steps", 2500),
        ("spec.tinker.learning_rate", 4e-5),
    ]


@pytest.mark.parametrize(
    ("names", "hint"),
    [(("default", "tiny"), "did you mean 'tiny'? (available: default, tiny)"), ((), "there is none yet")],
)
def test_runtime_not_found(names: tuple[str, ...], hint: str) -> None:
    refusal = runtime_not_found(make_run(runtime="tinny"), names)
    assert (refusal.code, refusal.field, refusal.given) == ("RuntimeNotFound", "spec.runtime", "tinny")
    assert hint in refusal.hint


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=3), children, max_size=2),
    max_leaves=4,
)
FIELD_NAMES = st.sampled_from(
    ["total_steps", "group_size", "batch_size", "learning_rate", "seed", "use_wandb", "api_key", "tokenizer_name", "?"]
)
FIELDS = st.dictionaries(FIELD_NAMES, JSON_VALUES, max_size=5)


@settings(max_examples=100)
@given(config=FIELDS, tinker=FIELDS, locked=FIELDS, defaults=FIELDS, environment=st.sampled_from(["toy", "x", "own/a"]))
def test_any_run_and_runtime_is_judged(
    config: dict[str, Any], tinker: dict[str, Any], locked: dict[str, Any], defaults: dict[str, Any], environment: str
) -> None:
    bounds = {"env": {"total_steps": {"max": 10}, "tokenizer_name": {"min": 3}}}
    runtime = make_runtime(locked={"env": locked}, defaults={"env": defaults, "tinker": defaults}, bounds=bounds)
    spec = {"config": config, "tinker": tinker, "environment": environment}
    refusals = check(spec, runtime)
    assert refusals == check(spec, runtime)
    assert all(refusal.hint and refusal.field.startswith("spec.") for refusal in refusals)


def test_tiny_lets_a_learner_turn_everything() -> None:
    run = make_run(
        config={"total_steps": 5, "group_size": 4, "batch_size": 16, "max_token_length": 32, "steps_per_eval": 2},
        tinker={"lora_rank": 4, "learning_rate": 1e-2, "loss": "cispo", "seed": 3, "save_checkpoint_interval": 1},
    )
    assert check_run(run, TINY, CATALOGUE) == ()
