"""From the list of environments to a draft that can start: the same on a real API server and on this machine."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import ADMIN_TOKEN, POWERLESS_TOKEN
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.tools.conftest import Call

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import latest_drafted, named_run
from rl_operator.tools.toolset import BY_NAME, Outcome, dispatch


def call_at(context: CallContext, tool: str, **arguments: Any) -> Outcome:
    return dispatch(BY_NAME[tool], context, arguments)


def drafted(call: Call, **arguments: Any) -> str:
    outcome = call("rl_select_environment", **{"name": "sort_digits", "runtime": "tiny", **arguments})
    assert outcome.code is None, outcome
    run_id: str = outcome.answer["run_id"]
    return run_id


def settings(context: CallContext, run_id: str) -> dict[str, Any]:
    spec = named_run(context, run_id).spec
    return {**spec.config, **spec.trainer}


def until_looked_at(context: CallContext, run_id: str) -> dict[str, Any]:
    """The status of the current draft."""

    def look() -> dict[str, Any] | None:
        run = named_run(context, run_id)
        return run.status.to_wire() if run.is_looked_at else None

    return wait_for(f"draft {run_id} is looked at", look)


def test_list_select_edit_and_read(context: CallContext, call: Call) -> None:
    listed = call("rl_list_environments", runtime="tiny", query="digits").answer
    assert [each["name"] for each in listed["environments"]] == ["sort_digits", "harness/sort_digits"]
    run_id = drafted(call)
    assert call("rl_edit_config", values={"group_size": "4", "learning_rate": 2e-3, "wandb_name": "mine"}).code is None
    config = call("rl_get_current_config").answer
    values = {each["name"]: each["current_value"] for each in config["configurable_fields"]}
    assert (values["group_size"], values["learning_rate"], values["wandb_name"]) == (4, 2e-3, "mine")
    assert config["state"] == "draft"
    status = until_looked_at(context, run_id)
    assert (status["phase"], status.get("refusals", [])) == ("Draft", [])
    assert status["configHash"]
    unset = call("rl_edit_config", values={"group_size": None, "wandb_name": None}).answer
    assert unset["config"] == {"learning_rate": 2e-3}
    assert settings(context, run_id) == {"learning_rate": 2e-3}
    assert until_looked_at(context, run_id)["configHash"] != status["configHash"]


def test_refusals_explain_themselves_and_write_nothing(context: CallContext, call: Call) -> None:
    nobody = call("rl_get_current_config")
    assert "rl_select_environment" in nobody.answer["error"]
    unknown = call("rl_select_environment", name="sort_digit", runtime="tiny")
    assert unknown.code == "refused"
    assert {"calculator_agent", "sort_digits", "harness/sort_digits", "reasoning-gym/NAME"} <= {
        *unknown.answer["available"]
    }
    run_id = drafted(call)
    locked = call("rl_edit_config", values={"group_size": 4, "tokenizer_name": "gpt2"})
    assert (locked.answer["locked_value"], locked.answer["refusals"][0]["code"]) == ("bundled", "LockedField")
    misspelled = call("rl_edit_config", field="group_sise", value=4)
    assert misspelled.answer["available_fields"][0] == "group_size"
    assert settings(context, run_id) == {}
    lost = call("rl_get_current_config", run_id="0a1b2c3d")
    assert "there is no run '0a1b2c3d'" in lost.answer["error"]


OWN_CODE = Path("tests/data/environments/shout.py").read_text(encoding="utf-8")


def test_an_own_environment_is_drafted_once_it_has_been_read(context: CallContext, call: Call) -> None:
    metadata = {"name": "shout", "namespace": context.namespace}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"shout.py": OWN_CODE}}
    spec = {"source": {"configMap": {"name": "shout"}}}
    own = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLEnvironment", "metadata": metadata, "spec": spec}
    context.target.apply(code)
    context.target.apply(own)

    def select() -> dict[str, Any] | None:
        outcome = call("rl_select_environment", name="own/shout", runtime="tiny")
        assert outcome.code is None or outcome.answer["retryable"], outcome
        return None if outcome.code else outcome.answer

    selected = wait_for("the environment has been read", select)
    assert (selected["environment"], selected["file_path"]) == ("own/shout", "shout.py")
    assert call("rl_edit_config", field="loudness", value="12").answer["config"] == {"loudness": 12}
    listed = call("rl_list_environments", runtime="tiny", query="capitals").answer["environments"]
    assert [(each["name"], "state" in each) for each in listed] == [("own/shout", False)]


def test_two_agents_of_a_user_edit_their_own_drafts(context: CallContext, call: Call) -> None:
    second = replace(context, agent="second")
    first_run = drafted(call)
    second_run = drafted(lambda tool, **arguments: call_at(second, tool, **arguments))
    call("rl_edit_config", field="group_size", value=4)
    call_at(second, "rl_edit_config", field="group_size", value=2)
    assert [settings(context, run)["group_size"] for run in (first_run, second_run)] == [4, 2]
    assert latest_drafted(context).metadata.name == first_run
    again = drafted(call)
    assert latest_drafted(context).metadata.name == again  # within the same second of the API server's clock, too
    assert call("rl_edit_config", run_id=first_run[-8:], field="group_size", value=8).answer["run_id"] == first_run


def test_concurrent_edits_lose_nothing(context: CallContext, call: Call) -> None:
    """Each is checked against the current draft, even while its status is being written."""
    run_id = drafted(call)
    values = {"total_steps": 7, "wandb_project": "p", "seed": 3}
    with ThreadPoolExecutor(len(values)) as threads:
        outcomes = list(threads.map(lambda pair: call("rl_edit_config", field=pair[0], value=pair[1]), values.items()))
    assert [outcome.code for outcome in outcomes] == [None] * len(values), outcomes
    assert settings(context, run_id) == {"total_steps": 7, "seed": 3}
    assert named_run(context, run_id).spec.wandb.project == "p"


# --- on a cluster ----------------------------------------------------------------------------------------------------
@pytest.mark.apiserver
def test_users_have_their_own_drafts_and_only_their_own_rights(
    cluster_context: CallContext, runs: RunsNamespace, cluster_target: ClusterTarget
) -> None:
    powerless = cluster_target.acting_as(POWERLESS_TOKEN)
    also_admin = cluster_target.acting_as(ADMIN_TOKEN)
    try:
        nobody = replace(cluster_context, target=powerless)
        refused = call_at(nobody, "rl_select_environment", name="sort_digits", runtime="tiny")
        assert (refused.code, "403" in refused.answer["error"]) == ("forbidden", True)
        assert nobody.caller != cluster_context.caller
        assert replace(cluster_context, target=also_admin).caller == cluster_context.caller
        assert runs.admin.items(RUNS.format(namespace=runs.namespace)) == []
    finally:
        powerless.close()
        also_admin.close()


@pytest.mark.apiserver
def test_a_started_run_keeps_its_settings(cluster_context: CallContext, runs: RunsNamespace) -> None:
    select = call_at(cluster_context, "rl_select_environment", name="sort_digits", runtime="tiny")
    name = select.answer["run_id"]
    runs.edit(name, suspend=False)
    runs.until_pod(name=name)
    refused = call_at(cluster_context, "rl_edit_config", values={"group_size": 4, "wandb_project": "p", "priority": 1})
    assert {refusal["code"] for refusal in refused.answer["refusals"]} == {"FrozenField"}
    assert call_at(cluster_context, "rl_edit_config", field="priority", value=1).code is None
    assert runs.find(name)["spec"]["priority"] == 1


@pytest.mark.apiserver
def test_a_run_from_a_backup_waits_and_may_be_edited_before_it_trains_again(
    cluster_context: CallContext, runs: RunsNamespace
) -> None:
    """It was restored without its status, with another uid than the one it was started with."""
    body = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": "restored", "annotations": {STARTED_AS_ANNOTATION: "restored.its-former-uid"}},
        "spec": {"environment": "sort_digits", "runtime": "tiny"},
    }
    runs.create(body)
    runs.until_phase("Stopped", "restored")
    edited = call_at(cluster_context, "rl_edit_config", run_id="restored", field="group_size", value=4)
    assert (edited.code, edited.answer["state"]) == (None, "stopped")
    assert runs.kubelet.pod("restored") is None


@pytest.mark.apiserver
def test_a_draft_kept_in_git_is_edited_with_a_warning(cluster_context: CallContext, runs: RunsNamespace) -> None:
    runs.apply("kept", suspend=True, config={"total_steps": 4, "group_sise": 8})
    path = f"{RUNS.format(namespace=runs.namespace)}/kept"
    runs.admin.patch(path, {"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "team"}}})
    edited = call_at(cluster_context, "rl_edit_config", run_id="kept", field="group_size", value=4).answer
    assert edited["warning"].startswith(f"Flux Kustomization '{runs.namespace}/team' keeps this run")
    assert [refusal["field"] for refusal in edited["refusals"]] == ["spec.config.group_sise"]
    assert (
        call_at(cluster_context, "rl_get_current_config").code == "refused"
    )  # a user's draft is no caller's latest draft
