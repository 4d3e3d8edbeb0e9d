"""rl_get_current_config: everything by its name, in few tokens."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, make_runtime
from tests.unit.rl_operator.tools.contexts import add_own, drafted, write_status

from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_get_current_config import config_view
from rl_operator.tools.drafts.field_names import RunFields, run_fields
from rl_operator.tools.toolset import Outcome

Call = Callable[..., Outcome]

SPEC = {"environment": "sort_digits"}


def listed(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (*view["configurable_fields"], *view["locked_fields"])}


def named(view: dict[str, Any]) -> set[str]:
    return {*listed(view), *view.get("more", [])}


@pytest.mark.parametrize("runtime", sorted(bundled_runtimes()))
@pytest.mark.parametrize("environment", ["sort_digits", "reasoning-gym/chain_sum", "reasoning-gym/mix"])
def test_every_bundled_environment_under_every_runtime_is_small_and_complete(
    context: CallContext, call: Call, environment: str, runtime: str
) -> None:
    drafted(context, environment, runtime=runtime)
    full = {
        "loss": "ppo",
        "wandb_notes": "x" * 4000,
        "wandb_tags": ["y" * 64] * 1,
        "custom_thinking_prompt": "z" * 9000,
    }
    for values in ({}, full):
        if values:
            assert call("rl_edit_config", values=values).code is None
        answer = call("rl_get_current_config").answer
        assert tokens(answer) < 1500
        fields = run_fields(CATALOG.named(environment), bundled_runtimes()[runtime])
        assert named(answer) == {fields.called(field) for field in fields.all}
        assert "left_out" not in answer
        assert {"group_size", "learning_rate", "total_steps"} <= listed(answer).keys()
        assert values.keys() <= listed(answer).keys()


def test_the_keys_of_a_field(context: CallContext, call: Call) -> None:
    drafted(context, runtime="default")
    call("rl_edit_config", field="group_size", value=8)
    answer = call("rl_get_current_config").answer
    assert (answer["environment"], answer["runtime"], answer["state"]) == ("sort_digits", "default", "draft")
    fields = listed(answer)
    assert fields["group_size"] == {
        "name": "group_size",
        "type": "int",
        "current_value": 8,
        "default": 16,
        "allowed": "at least 1, at most 65536",
    }
    assert fields["batch_size"] == {
        "name": "batch_size",
        "type": "int",
        "current_value": 128,
        "allowed": "at least 1, at most 1000000",
    }
    assert fields["total_steps"] == {"name": "total_steps", "locked_value": 2500}
    assert fields["loss"]["allowed"] == "importance_sampling, ppo, cispo, gspo, dro"


@pytest.mark.parametrize("name", ["group_size", "config.group_size", "spec.config.group_size"])
def test_a_single_field_comes_with_its_meaning(context: CallContext, call: Call, name: str) -> None:
    drafted(context)
    [field] = call("rl_get_current_config", field=name).answer["configurable_fields"]
    assert (field["name"], field["path"], field["default"], field["current_value"]) == (
        "group_size",
        "config.group_size",
        8,
        8,
    )
    assert "responses are grouped" in field["description"]


def test_a_locked_field_shows_its_value(context: CallContext, call: Call) -> None:
    drafted(context, runtime="default")
    answer = call("rl_get_current_config", field="lora_rank").answer
    assert (answer["locked_fields"][0]["locked_value"], "configurable_fields" in answer) == (32, False)


def test_without_a_draft_it_explains_how_to_get_one(call: Call) -> None:
    refused = call("rl_get_current_config")
    assert (refused.code, "rl_select_environment" in refused.answer["error"]) == ("refused", True)


@pytest.mark.process
def test_the_state_of_the_runs_inputs_is_shown(context: CallContext, call: Call) -> None:
    context.target.more = (make_runtime(),)
    drafted(context, runtime="lab")
    context.target.more = ()
    assert "there is no such RLRuntime" in call("rl_get_current_config").answer["error"]
    add_own(context)
    drafted(context, "own/shout")
    context.target._store.delete("RLEnvironment", "default", "shout")
    refused = call("rl_get_current_config")
    assert "there is no RLEnvironment 'shout'" in refused.answer["error"]
    assert {"sort_digits", "reasoning-gym/NAME"} <= set(refused.answer["available"])


def test_a_run_that_has_started_says_so(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    context.target.change_spec("default", run_id, {"suspend": False})
    write_status(context, run_id, phase="Running", startTime="2026-05-01T12:00:00Z", observedGeneration=2)
    answer = call("rl_get_current_config").answer
    assert (answer["state"], "has started" in answer["tip"]) == ("running", True)


def many_fields(count: int, **field: Any) -> RunFields:
    fields = [{"name": f"knob_{i:04}", "type": "int", "default": i, **field} for i in range(count)]
    return run_fields(catalog_of(*fields).named("toy"), make_runtime())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(many_fields(60), id="60 fields"),
        pytest.param(many_fields(2000), id="2000 fields"),
        pytest.param(many_fields(30, type="str", default="x" * 50_000), id="long defaults"),
        pytest.param(many_fields(30, type=f"Literal[{', '.join(map(str, range(5000)))}]"), id="long limits"),
    ],
)
def test_any_environment_is_small_and_names_omissions(fields: RunFields) -> None:
    spec = {**SPEC, "config": {"knob_0029": 7}, "tinker": {"lora_rank": 4}}
    view = config_view({"run_id": "toy-0a1b2c3d"}, fields, spec)
    assert tokens(view) < 1500
    assert len(named(view)) + view.get("left_out", 0) == len(fields.all)
    assert {"knob_0029", "lora_rank"} <= listed(view).keys()


@pytest.mark.parametrize("runtime", [TINY, DEFAULT], ids=["tiny", "default"])
def test_a_key_written_into_a_run_is_not_shown(runtime) -> None:
    fields = run_fields(CATALOG.named("sort_digits"), runtime)
    spec = {**SPEC, "config": {"custom_thinking_prompt": "tml-0123456789"}, "wandb": {"notes": "tml-0123456789"}}
    assert "tml-" not in str(config_view({}, fields, spec))
