"""What another run may start from, and the refusal otherwise."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import TINY, inputs_of, make_run, make_runtime, run_document

from rl_contract.trainer_settings import TrainerSettings
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import ParentRun
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import RunStatus, StartedFrom
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.lineage import ParentAdapter, adapter_of, describe_parent
from rl_operator.check.run_check import check_run
from rl_operator.documents.parse import parse_run
from rl_operator.render.manifests import render_config

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
STATE = StartedFrom(run="sorting-1", uid="u-1", step=40, state_path="tinker://m/weights/end")
ALL_LAYERS = {"train_attn": True, "train_mlp": True, "train_unembed": True}
TRAINED = {"lora_rank": 16, **ALL_LAYERS}  # what `tiny` trains
PARENT = ParentRun(
    "sorting-1", exists=True, phase="Succeeded", state=STATE, base_model="bundled", adapter_shape=TRAINED
)


def refusals(parent: ParentRun | None = PARENT, **spec: Any) -> list[Refusal]:
    run = make_run(**{"startFrom": {"run": "sorting-1"}, **spec})
    found = check_run(run, replace(inputs_of(run), parent=parent))
    assert all(r.field.startswith("spec.startFrom") for r in found)
    return list(found)


def test_accepted() -> None:
    assert refusals() == []
    assert refusals(replace(PARENT, phase="Failed")) == []
    assert refusals(startFrom={"run": "sorting-1", "withOptimizer": True}) == []
    assert refusals(replace(PARENT, expires_at="2027-01-01T00:00:00Z")) == []
    assert refusals(replace(PARENT, adapter_shape=TRAINED | {"lora_rank": 16.0})) == []


ONE_THAT_IS_OVER = "a run of this namespace that is over, with a state that has not expired"
BY_PATH = "to start from its state of step 40, set spec.startFrom to {checkpoint: tinker://m/weights/end}"


@pytest.mark.parametrize(
    ("parent", "hint"),
    [
        (ParentRun("sorting", exists=True, phase="Pending"), "a run cannot start from itself: name another one"),
        (ParentRun("sorting-1", exists=False), "there is no such run in namespace team-a: name one that is over"),
        (ParentRun("sorting-1", exists=True), "it is new and not over: start from it once it is"),
        (replace(PARENT, phase="Running"), "it is Running and not over: start from it once it is"),
        (replace(PARENT, phase="Stopped", state=None), "it is Stopped and not over: start from it once it is"),
        (
            replace(PARENT, phase="Stopped"),
            f"it is Stopped and not over: resume it and let it end; {BY_PATH}",
        ),
        (replace(PARENT, phase="Failed", state=None), "it is Failed and kept no state: name another run"),
        (
            replace(PARENT, expires_at="2026-04-30T00:00:00Z", expired=True),
            "its state of step 40 expired at 2026-04-30T00:00:00Z: name another run",
        ),
        (
            replace(PARENT, base_model=None, adapter_shape={}),
            f"what it trained is no longer known (its ConfigMap is gone): {BY_PATH}",
        ),
    ],
    ids=["itself", "absent", "new", "running", "stopped", "stopped with a state", "no state", "expired", "unknown"],
)
def test_a_parent_that_cannot_be_used(parent: ParentRun, hint: str) -> None:
    [refusal] = refusals(parent)
    assert (refusal.code, refusal.field) == ("StartFromRefused", "spec.startFrom.run")
    assert (refusal.given, refusal.allowed, refusal.hint) == ("sorting-1", ONE_THAT_IS_OVER, hint)


def test_a_different_model_or_rank_is_named_with_both_values() -> None:
    parent = replace(PARENT, base_model="Qwen/Qwen3-8B", adapter_shape=TRAINED | {"lora_rank": 32})
    model, rank = refusals(parent, trainer={"lora_rank": 4})
    assert model.allowed == {"baseModel": "Qwen/Qwen3-8B"}
    assert model.sentence == (
        'spec.startFrom.run is "sorting-1": it trained the model "Qwen/Qwen3-8B", and this run trains "bundled": '
        'choose a runtime that trains "Qwen/Qwen3-8B", or start from another run'
    )
    assert rank.allowed == {"loraRank": 32}
    assert rank.sentence == (
        'spec.startFrom.run is "sorting-1": it trained with a LoRA rank of 32, and this run has 4: '
        "set spec.trainer.lora_rank to 32, or start from another run"
    )


def test_data_are_continued_in_the_same_environment() -> None:
    onward = {"run": "sorting-1", "data": "continue"}
    assert refusals(replace(PARENT, environment="sort_digits"), startFrom=onward) == []
    [refusal] = refusals(replace(PARENT, environment="gsm_synthetic"), startFrom=onward)
    assert refusal.sentence == (
        'spec.startFrom.data is "continue": sorting-1 trained items of "gsm_synthetic", and this run trains those of '
        '"sort_digits": use restart'
    )
    assert (refusal.code, refusal.allowed) == ("StartFromRefused", "restart")
    assert refusals(replace(PARENT, environment="gsm_synthetic")) == []


def test_other_layers_are_named_with_both_values() -> None:
    off, on = refusals(replace(PARENT, adapter_shape=TRAINED | {"train_mlp": False}), trainer={"train_unembed": False})
    assert off.allowed == {"trainMlp": False}
    assert off.sentence == (
        'spec.startFrom.run is "sorting-1": it trained with train_mlp false, and this run has true: '
        "set spec.trainer.train_mlp to false, or start from another run"
    )
    assert on.allowed == {"trainUnembed": True}
    assert on.hint.startswith("it trained with train_unembed true, and this run has false: ")


@pytest.mark.parametrize(
    ("runtime", "advice"),
    [
        (make_runtime(), "set spec.trainer.lora_rank to 16"),  # and the trainer's default is another
        (make_runtime(locked={"trainer": {"lora_rank": 32}}), "choose a runtime that does not lock it to another"),
    ],
)
def test_a_rank_that_the_run_does_not_set_counts(runtime: Runtime, advice: str) -> None:
    run = make_run(runtime="lab", startFrom={"run": "sorting-1"})
    found = check_run(run, replace(inputs_of(run, runtime), parent=PARENT))
    [refusal] = [each for each in found if each.allowed == {"loraRank": 16}]
    given = "it trained with a LoRA rank of 16, and this run has 32"
    assert refusal.hint == f"{given}: {advice}, or start from another run"


def test_no_hint_repeats_a_key_or_a_long_value() -> None:
    key = "tml-" + "k" * 40
    run = make_run(
        runtime="lab", startFrom={"run": "sorting-1"}, config={"tokenizer_name": key}, trainer={"lora_rank": "9" * 999}
    )
    inputs = replace(inputs_of(run, make_runtime()), parent=PARENT)
    said = [r.sentence for r in check_run(run, inputs) if r.code == "StartFromRefused"]
    assert len(said) == 2
    assert not any(key in sentence or len(sentence) > 500 for sentence in said)


def test_without_reading_the_parent_nothing_is_said() -> None:
    assert refusals(None) == []


def ended(**status: Any) -> TrainingRun:
    run = parse_run(run_document())
    return run.with_changes(status=RunStatus.model_validate(status))


WEIGHTS = {"samplerPath": "tinker://m/sampler_weights/end", "statePath": "tinker://m/weights/end"}
CHECKPOINT = {"step": 25, "statePath": "tinker://m/weights/000025", "expiresAt": "2026-06-01T00:00:00Z"}
SUCCESS = {
    "phase": "Succeeded",
    "progress": {"step": 40, "totalSteps": 40, "percent": 100},
    "weights": WEIGHTS,
    "checkpoint": {**CHECKPOINT, "step": 40, "statePath": WEIGHTS["statePath"]},
    "wandb": {"url": "https://wandb.ai/a/b/runs/c"},
}


@pytest.mark.parametrize(
    ("status", "path", "step", "expires_at"),
    [
        (SUCCESS, "tinker://m/weights/end", 40, "2026-06-01T00:00:00Z"),
        ({**SUCCESS, "checkpoint": CHECKPOINT}, "tinker://m/weights/end", 40, None),
        ({**SUCCESS, "weights": {**WEIGHTS, "expiresAt": "x"}}, "tinker://m/weights/end", 40, "x"),
        ({**SUCCESS, "weights": None, "checkpoint": CHECKPOINT}, CHECKPOINT["statePath"], 25, "2026-06-01T00:00:00Z"),
        ({"phase": "Failed", "checkpoint": CHECKPOINT}, CHECKPOINT["statePath"], 25, "2026-06-01T00:00:00Z"),
    ],
    ids=["success", "an older checkpoint", "the weights' own expiry", "no weights", "failure"],
)
def test_the_last_state(status: dict[str, Any], path: str, step: int, expires_at: str | None) -> None:
    run = ended(**status)
    parent = describe_parent(run, ParentAdapter("bundled", TRAINED), NOW)
    assert parent.state is not None
    assert (parent.state.state_path, parent.state.step, parent.expires_at) == (path, step, expires_at)
    assert (parent.state.run, parent.state.uid, parent.expired) == ("sorting", run.metadata.uid, False)
    assert parent.state.wandb_url == ("https://wandb.ai/a/b/runs/c" if "wandb" in status else None)
    assert (parent.base_model, parent.adapter_shape) == ("bundled", TRAINED)


def test_a_failure_before_the_first_checkpoint_kept_nothing() -> None:
    assert describe_parent(ended(phase="Failed"), None, NOW).state is None


@pytest.mark.parametrize(
    ("expires_at", "expired"),
    [
        ("2026-05-01T12:00:00Z", True),
        ("2026-05-01T12:00:01Z", False),
        ("2026-05-01T13:59:59+02:00", True),
        ("2026-05-01T11:00:00", True),  # without a zone: UTC
        ("soon", False),
    ],
)
def test_expiry(expires_at: str, expired: bool) -> None:
    checkpoint = {**CHECKPOINT, "expiresAt": expires_at}
    assert describe_parent(ended(phase="Failed", checkpoint=checkpoint), None, NOW).expired is expired


@given(
    name=st.none() | st.text(max_size=3),
    shape=st.fixed_dictionaries(
        {}, optional={"lora_rank": st.integers(1, 64), "train_attn": st.booleans(), "train_mlp": st.booleans()}
    ),
)
def test_the_adapter_is_what_the_trainer_reads_from_the_config_file(name: str | None, shape: dict[str, Any]) -> None:
    config = render_config(make_run(), inputs_of(make_run()))
    openai = {**config["openai"][0], "model_name": name}
    tinker = {key: value for key, value in config["tinker"].items() if key != "lora_rank"}
    document = {**config, "openai": [openai], "tinker": tinker | shape}
    read = TrainerSettings.model_validate(document["tinker"])
    trained = {"lora_rank": read.lora_rank, **read.lora_layers}
    base_model = name or document["env"]["tokenizer_name"]
    assert adapter_of(document["env"], openai, document["tinker"]) == ParentAdapter(base_model, trained)


def test_the_samples_match_their_runtime() -> None:
    assert (TINY.spec.locked.env["tokenizer_name"], TINY.spec.defaults.trainer["lora_rank"]) == ("bundled", 16)
