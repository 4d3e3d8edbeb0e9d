import difflib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import catalog_of, inputs_of, make_run, make_runtime

from rl_operator.api.refusal import MAX_REFUSALS
from rl_operator.check import check_run, runtime_not_found
from rl_operator.documents.parse import MAX_ALIGNED


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"config": {"max_token_length": 64, "color": "blue", "total_steps": 100}},  # equal to locked; at the bound
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


def test_all_refusals_come_in_a_stable_order() -> None:
    spec = {
        "environment": "toy",
        "config": {"zzz": 1, "aaa": 2, "group_size": 3},
        "tinker": {"lora_rank": 1},
        "activeDeadlineSeconds": 601,
    }
    assert [refusal.field for refusal in check(spec)] == [
        "spec.config.aaa",
        "spec.config.zzz",
        "spec.tinker.lora_rank",
        "spec.config.batch_size",
        "spec.activeDeadlineSeconds",
    ]


@pytest.mark.parametrize(
    ("names", "hint"),
    [(("default", "tiny"), "did you mean 'tiny'? (available: default, tiny)"), ((), "there is none yet")],
)
def test_runtime_not_found(names: tuple[str, ...], hint: str) -> None:
    refusal = runtime_not_found(make_run(runtime="tinny"), names)
    assert (refusal.code, refusal.field, refusal.given) == ("RuntimeNotFound", "spec.runtime", "tinny")
    assert hint in refusal.hint


def test_an_invalid_runtime_is_the_only_reason() -> None:
    """Faults of the run cannot be found while its runtime is not valid."""
    runtime = make_runtime(locked={"tinker": {"lerning_rate": 1}})
    (refusal,) = check_run(make_run(config={"nonsense": 1}), inputs_of(make_run(), runtime))
    assert (refusal.code, refusal.field) == ("RuntimeInvalid", "spec.runtime")
    assert "spec.locked.tinker.lerning_rate" in refusal.hint
    assert "administrator" in refusal.hint


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
def test_any_run_and_runtime_is_checked(
    config: dict[str, Any], tinker: dict[str, Any], locked: dict[str, Any], defaults: dict[str, Any], environment: str
) -> None:
    bounds = {"env": {"total_steps": {"max": 10}, "tokenizer_name": {"min": 3}}}
    runtime = make_runtime(locked={"env": locked}, defaults={"env": defaults, "tinker": defaults}, bounds=bounds)
    spec = {"config": config, "tinker": tinker, "environment": environment}
    refusals = check(spec, runtime)
    assert refusals == check(spec, runtime)
    assert all(refusal.hint and refusal.field.startswith("spec.") for refusal in refusals)


def test_tiny_lets_a_learner_change_everything() -> None:
    run = make_run(
        config={"total_steps": 5, "group_size": 4, "batch_size": 16, "max_token_length": 32, "steps_per_eval": 2},
        tinker={"lora_rank": 4, "learning_rate": 1e-2, "loss": "cispo", "seed": 3, "save_checkpoint_interval": 1},
    )
    assert check_run(run, inputs_of(run)) == ()


def test_a_refusal_names_some_of_many_runtimes() -> None:
    names = [f"runtime-{number:03}" for number in range(300)]
    refusal = runtime_not_found(make_run(runtime="runtime-29"), names)
    assert refusal.hint.endswith("runtime-018, runtime-019 and 280 more)")
    assert len(refusal.sentence) < 500


def test_many_misspelled_names_cost_little_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and its environment may both be hostile, and everybody's checks wait for this one."""
    aligned = []

    class Counting(difflib.SequenceMatcher):  # type: ignore[type-arg]
        def ratio(self) -> float:
            aligned.append(max(len(self.a), len(self.b)))
            return super().ratio()

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    known = ({"name": f"{n:03}{'x_y' * 33}", "type": "int", "default": 1} for n in range(500))
    refusals = check({"config": {f"{n:03}{'y_x' * 33}": 1 for n in range(200)}}, catalog=catalog_of(*known))
    assert len(refusals) == MAX_REFUSALS + 1
    assert 0 < len(aligned) <= (MAX_REFUSALS + 1) * MAX_ALIGNED
    assert max(aligned) == 40
