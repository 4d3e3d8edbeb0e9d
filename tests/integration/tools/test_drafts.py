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
from tests.unit.rl_operator.tools.contexts import call_at

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import named_run


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
