"""rl_edit_config: the edit is checked before anything is written, and it is written entirely or not at all."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, make_runtime, tasksets
from tests.unit.rl_operator.strategies import JSON, PRINTABLE, SECRET, SOUND_CONFIGS, SOUND_TINKER, drawn
from tests.unit.rl_operator.tools.contexts import Call, Unattended, add_own, call_at, drafted, spec_of, write_status

from rl_operator.api.catalog import Catalog
from rl_operator.api.runtime import Runtime
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import Manifest
from rl_operator.targets.inputs.file_inputs import check_file
from rl_operator.targets.inputs.run_file import RunFile
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_edit_config import config_view
from rl_operator.tools.drafts.field_names import RunFields, run_fields, spellings_of
from rl_operator.tools.runs import named_run

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
    spec = {**SPEC, "config": {"knob_0029": 7}, "trainer": {"lora_rank": 4}}
    view = config_view({"run_id": "toy-0a1b2c3d"}, fields, spec)
    assert tokens(view) < 1500
    assert len(named(view)) + view.get("left_out", 0) == len(fields.all)
    assert {"knob_0029", "lora_rank"} <= listed(view).keys()


@pytest.mark.parametrize("runtime", [TINY, DEFAULT], ids=["tiny", "default"])
def test_a_key_written_into_a_run_is_not_shown(runtime) -> None:
    fields = run_fields(CATALOG.named("sort_digits"), runtime)
    spec = {**SPEC, "config": {"custom_thinking_prompt": "tml-0123456789"}, "wandb": {"notes": "tml-0123456789"}}
    assert "tml-" not in str(config_view({}, fields, spec))


FIELDS = run_fields(CATALOG.named("sort_digits"), TINY)


class Counted:
    """A target that counts the calls that may cost a request, by name."""

    COUNTED = ("run", "runs", "runtimes", "catalog", "environments", "read", "namespace_labels", "change_spec")

    def __init__(self, target: Unattended) -> None:
        self._target = target
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in self.COUNTED:
            self.calls.append(name)
        return getattr(self._target, name)


def test_an_edit_gathers_its_inputs_once(tmp_path: Path) -> None:
    counted = Counted(Unattended(Layout(tmp_path), "", print))
    context = CallContext(counted, "default")
    run_id = drafted(context)
    counted.calls.clear()
    assert call_at(context, "rl_edit_config", run_id=run_id, field="group_size", value=4).code is None
    assert sorted(counted.calls) == ["catalog", "change_spec", "namespace_labels", "run", "runtimes"]


def test_one_field(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    answer = call("rl_edit_config", field="group_size", value=4).answer
    assert answer == {
        "message": "group_size is 4 now (it was 8)",
        "run_id": run_id,
        "state": "draft",
        "field": "group_size",
        "value": 4,
        "changed": [{"field": "group_size", "path": "config.group_size", "from": 8, "to": 4}],
        "config": {"group_size": 4},
    }
    assert spec_of(context, run_id)["config"] == {"group_size": 4}


def test_several_fields_of_all_sections(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    values = {
        "group_size": 4, "trainer.loss": "ppo", "wandb_project": "p", "wandb.tags": ["a"], "spec.backoffLimit": 0,
        "priority": -5, "start_from": {"checkpoint": "tinker://m/weights/10"},
        "sandbox": {"size": 2, "timeout_seconds": 60},
    }  # fmt: skip
    assert call("rl_edit_config", values=values).code is None
    spec = spec_of(context, run_id)
    assert (spec["config"], spec["trainer"]) == ({"group_size": 4}, {"loss": "ppo"})
    assert spec["wandb"] == {"project": "p", "tags": ["a"]}
    assert (spec["backoffLimit"], spec["priority"]) == (0, -5)
    assert spec["startFrom"]["checkpoint"] == "tinker://m/weights/10"
    assert (spec["sandbox"]["size"], spec["sandbox"]["timeoutSeconds"]) == (2, 60)
    unset = dict.fromkeys(values)
    answer = call("rl_edit_config", values=unset, run_id=run_id).answer
    assert answer["config"] == {}
    assert len(answer["changed"]) == len(values)


def test_a_locked_field_explains_why(context: CallContext, call: Call) -> None:
    drafted(context, runtime="default")
    refused = call("rl_edit_config", field="learning_rate", value=1e-3)
    assert (refused.code, refused.answer["locked_value"]) == ("refused", 4e-5)
    assert "runtime 'default' locks it to 4e-05" in refused.answer["error"]
    assert refused.answer["refusals"][0]["code"] == "LockedField"


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"loss": "pppo"}, id="no choice"),
        pytest.param({"total_steps": 0}, id="too small"),
        pytest.param({"total_steps": "ten"}, id="no number"),
        pytest.param({"tokenizer_name": "gpt2"}, id="locked"),
        pytest.param({"nothing_like_it": 1}, id="unknown"),
        pytest.param({"wandb_tags": ["a,b"]}, id="of the run's own"),
        pytest.param({"wandb_notes": SECRET}, id="a key"),
        pytest.param({"custom_thinking_prompt": SECRET}, id="a key of the environment's"),
        pytest.param({"environment_replicas": 65}, id="too many"),
        pytest.param({"start_from": {"run": "nobody"}}, id="no such run"),
        pytest.param({"start_from": {"rum": "nobody"}}, id="no such field within"),
        pytest.param({"custom_thinking_prompt": "x" * 300_000}, id="too long"),
    ],
)
def test_one_bad_value_prevents_all_writes(context: CallContext, call: Call, bad: dict[str, Any]) -> None:
    run_id = drafted(context)
    before = context.target.run("default", run_id)
    refused = call("rl_edit_config", values={"group_size": 4, **bad})
    assert refused.code == "refused", refused
    assert SECRET not in str(refused)
    assert context.target.run("default", run_id) == before


def test_every_fault_is_reported_at_once(context: CallContext, call: Call) -> None:
    drafted(context)
    refused = call("rl_edit_config", values={"lr": 1, "steps": 3, "total_steps": 0, "group_size": "many"}).answer
    for part in (
        "there is no field \"lr\"; did you mean 'learning_rate'",
        'there is no field "steps"',
        "spec.config.total_steps is 0: it must be at least 1",
        'spec.config.group_size is "many": it must be an integer',
    ):
        assert part in refused["error"]
    assert refused["available_fields"][0] == "learning_rate"
    assert [each["field"] for each in refused["refusals"]] == ["spec.config.group_size", "spec.config.total_steps"]


def test_an_answer_about_many_long_values_is_short(context: CallContext, call: Call) -> None:
    drafted(context)
    texts = [field.path for field in FIELDS.all if field.field.type in ("str", "str | None", "Optional[str]")]
    values = {path: "x" * 120 for path in texts if path != "config.tokenizer_name"}
    outcome = call("rl_edit_config", values=values)
    assert (outcome.code, tokens(outcome.answer) < 1500) == (None, True)


def test_values_that_only_fit_together_are_accepted_together(context: CallContext, call: Call) -> None:
    drafted(context)
    alone = call("rl_edit_config", field="group_size", value=5)
    assert alone.answer["refusals"][0]["code"] == "Inconsistent"
    assert call("rl_edit_config", values={"group_size": 5, "batch_size": 20}).code is None


def test_an_earlier_refusal_does_not_block_an_edit(context: CallContext, call: Call) -> None:
    context.target.more = (make_runtime(bounds={"env": {"total_steps": {"max": 7}}}),)
    drafted(context, runtime="lab")
    edited = call("rl_edit_config", field="group_size", value=4).answer
    assert [refusal["field"] for refusal in edited["refusals"]] == ["spec.config.total_steps"]
    assert call("rl_edit_config", field="total_steps", value=8).code == "refused"
    assert "refusals" not in call("rl_edit_config", field="total_steps", value=7).answer


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"field": "group_size"},
        {"values": {}},
        {"field": "group_size", "value": 4, "values": {"batch_size": 8}},
    ],
    ids=str,
)
def test_the_change_must_be_given(context: CallContext, call: Call, arguments: dict[str, Any]) -> None:
    drafted(context)
    assert "give field and value" in call("rl_edit_config", **arguments).answer["error"]


def test_nulls_filled_in_by_clients_are_understood(context: CallContext, call: Call) -> None:
    drafted(context)
    assert call("rl_edit_config", field="group_size", value=4, values=None, run_id=None).code is None
    assert call("rl_edit_config", field=None, value=None, values={"group_size": 2}).code is None
    assert call("rl_edit_config", field="group_size", value=None).answer["config"] == {}


def test_unchanged_values_are_not_written(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    call("rl_edit_config", field="group_size", value=4)
    before = context.target.run("default", run_id)
    assert call("rl_edit_config", field="group_size", value="4").answer["changed"] == []
    assert context.target.run("default", run_id) == before


def test_the_settings_of_a_started_run_are_frozen(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    context.target.change_spec("default", run_id, {"suspend": False})
    write_status(context, run_id, phase="Running", startTime="2026-05-01T12:00:00Z", observedGeneration=2)
    for field in ("group_size", "wandb_project", "backoff_limit", "start_from"):
        refused = call("rl_edit_config", field=field, value=None)
        assert refused.answer["refusals"][0]["code"] == "FrozenField"
    assert "rl_select_environment" in refused.answer["error"]
    assert call("rl_edit_config", field="priority", value=-7).answer["state"] == "running"
    assert spec_of(context, run_id)["priority"] == -7


def test_a_finished_run_explains_how_to_train_on(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    write_status(context, run_id, phase="Succeeded", startTime="2026-05-01T12:00:00Z", observedGeneration=1)
    refused = call("rl_edit_config", field="priority", value=-7)
    assert f'{{"run": "{run_id}"}}' in refused.answer["error"]
    assert call("rl_edit_config", field="ttl_seconds_after_finished", value=60).code is None


def test_a_restored_draft_can_be_edited(context: CallContext, call: Call) -> None:
    """Its status was not restored: requested again, it trains from the beginning with the new settings."""
    run_id = drafted(context)
    mark = {"rl-operator.dev/started-as": f"{run_id}.another-uid"}
    context.target.change_spec("default", run_id, {}, mark)
    assert call("rl_edit_config", field="group_size", value=4).code is None


def test_the_tool_that_would_revert_an_edit_is_named(context: CallContext, call: Call) -> None:
    run_id = drafted(context)
    label = {"kustomize.toolkit.fluxcd.io/name": "team"}
    context.target._store.update(
        "RLTrainingRun", "default", run_id, lambda run: run["metadata"]["labels"].update(label)
    )
    assert "Flux Kustomization 'default/team'" in call("rl_edit_config", field="group_size", value=4).answer["warning"]


class Contested(Unattended):
    """Another client writes to the run just before each of the caller's first writes."""

    others: list[dict[str, Any]]

    def change_spec(self, namespace: str, name: str, changes, annotations=None, *, version: str = "") -> Manifest:
        if self.others:
            super().change_spec(namespace, name, self.others.pop())
        return super().change_spec(namespace, name, changes, annotations, version=version)


def contested(folder: Path, *others: dict[str, Any]) -> CallContext:
    target = Contested(Layout(folder), "", print)
    target.others = []
    context = CallContext(target, "default")
    drafted(context)
    target.others = list(others)
    return context


def test_an_edit_is_checked_together_with_concurrent_changes(tmp_path: Path) -> None:
    context = contested(tmp_path, {"config": {"batch_size": 16}}, {"priority": -5})
    refused = call_at(context, "rl_edit_config", field="group_size", value=32)
    assert (refused.code, refused.answer["refusals"][0]["code"]) == ("refused", "Inconsistent")
    [run] = context.target.runs("default", "")
    assert (run["spec"]["config"], run["spec"]["priority"]) == ({"batch_size": 16}, -5)


def test_an_edit_that_always_loses_the_race_may_be_retried(tmp_path: Path) -> None:
    context = contested(tmp_path, *({"priority": -number} for number in range(99)))
    refused = call_at(context, "rl_edit_config", field="group_size", value=8)
    assert (refused.code, refused.answer["retryable"]) == ("conflict", True)


NAMES = st.sampled_from(
    [spelling for field in FIELDS.all for spelling in sorted(spellings_of(field))]
) | st.sampled_from(["group_sise", "spec", "config.", "env.api_key", "suspend", "", SECRET])
EDITS = (
    SOUND_CONFIGS
    | SOUND_TINKER
    | st.dictionaries(NAMES, st.none() | JSON, min_size=1, max_size=3)
    | st.fixed_dictionaries({}, optional={"wandb_name": PRINTABLE, "wandb_tags": st.lists(PRINTABLE), "priority": JSON})
)


@drawn(0.4)
@given(st.sampled_from(["tiny", "default"]), st.lists(EDITS, max_size=4))
def test_after_any_edits_the_spec_passes_the_check_or_is_unchanged(runtime: str, edits: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = CallContext(Unattended(Layout(Path(folder)), "", print), "default")
        run_id = drafted(context, runtime=runtime)
        for values in edits:
            before = context.target.run("default", run_id)
            outcome = call_at(context, "rl_edit_config", values=values)
            assert SECRET not in str(outcome)
            if outcome.code is None:
                assert check_file(RunFile(named_run(context, run_id)), context.target) == ((), None)
                config = call_at(context, "rl_get_current_config")
                assert (config.code, tokens(config.answer) < 1500) == (None, True)
            else:
                assert outcome.code == "refused"
                assert context.target.run("default", run_id) == before


class Tasksets(Unattended):
    """Its catalog has environments with fields inside of a mapping."""

    def catalog(self, runtime: Runtime) -> Catalog:  # noqa: ARG002 -- of every runtime
        return tasksets()


def test_a_tasksets_fields_are_drafted_edited_and_shown_by_their_dotted_names(tmp_path: Path) -> None:
    context = CallContext(Tasksets(Layout(tmp_path), "", print), "default")
    listed = call_at(context, "rl_list_environments", query="verifiers/").answer["environments"]
    assert [each["name"] for each in listed] == ["verifiers/sorting", "verifiers/poker", "verifiers/word_game"]
    run_id = drafted(context, "verifiers/sorting@1.0")
    answer = call_at(context, "rl_edit_config", values={"taskset.size": 3, "taskset.level": "hard"}).answer
    assert answer["config"] == {"taskset.level": "hard", "taskset.size": 3}
    assert spec_of(context, run_id)["config"] == {"taskset": {"level": "hard", "size": 3}}
    shown = call_at(context, "rl_get_current_config").answer["configurable_fields"]
    assert {"name": "taskset.size", "type": "int", "current_value": 3, "default": 100, "allowed": "at least 1"} in shown
    [run] = call_at(context, "rl_list_runs").answer["runs"]
    assert run["changed_config"] == {"taskset.level": "hard", "taskset.size": 3}
    refused = call_at(context, "rl_edit_config", field="taskset.size", value=0)
    assert refused.answer["refusals"][0]["field"] == "spec.config.taskset.size"
    unset = call_at(context, "rl_edit_config", field="taskset.size", value=None).answer
    assert unset["config"] == {"taskset.level": "hard"}
