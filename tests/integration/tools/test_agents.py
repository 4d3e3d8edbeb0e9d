"""From a list of environments to trained weights, as agents do it: through MCP, on this machine and on a real API
server.

The answers of each tool are tested in its own file, and the lives of runs in test_runs, without MCP; here each tool is
refused, fails and succeeds once. On a cluster the whole way is walked with the rights that the documentation gives.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.local.conftest import end_everything
from tests.integration.tools.agents import Agent, agent_over_http, agent_over_stdio, tools_server
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.tools.toolset import BY_NAME

on_cluster = pytest.mark.apiserver

SOON = 30.0
LONG = 200.0
"""Seconds, of real training on a machine that is busy."""

SHORT = {"total_steps": 2, "group_size": 4, "batch_size": 8, "steps_per_eval": 100, "eval_items": 8}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rl_list_environments": ({"runtime": "tini"}, "tini"),
    "rl_select_environment": ({"name": "sort_digit", "runtime": "tiny"}, "did you mean 'sort_digits'"),
    "rl_get_current_config": ({"field": "group_sise"}, "did you mean 'group_size'"),
    "rl_edit_config": ({"field": "tokenizer_name", "value": "Qwen/Qwen3-8B"}, "locks it to"),
    "rl_test_inference": ({}, "runtime tiny names no provider"),
    "rl_start_training": ({"run_id": "nothing"}, "there is no run 'nothing'"),
    "rl_check_status": ({"run_id": "nothing"}, "there is no run 'nothing'"),
    "rl_get_logs": ({"container": "kitchen"}, "kitchen"),
    "rl_stop_training": ({"run_id": "nothing"}, "there is no run 'nothing'"),
    "rl_get_results": ({"samples": 0}, "samples is 0"),
    "rl_list_runs": ({"after": "nothing"}, "after is 'nothing'"),
    "rl_compare": ({"experiment": "nothing"}, "there is no experiment 'nothing'"),
    "rl_health_check": ({"loud": True}, "it takes none"),
}
"""Of an agent that has drafted a run of `sort_digits`."""

RIGHT: dict[str, dict[str, Any]] = {
    "rl_select_environment": {"name": "sort_digits"},
    "rl_edit_config": {"field": "group_size", "value": 4},
    "rl_start_training": {"run_id": "sorting"},
    "rl_check_status": {"run_id": "sorting"},
    "rl_sample": {"prompt": "x"},
    "rl_stop_training": {"run_id": "sorting"},
    "rl_compare": {"run_ids": ["sorting", "sorting-2"]},
}
"""Arguments of the tools that take some."""


def everything_refused(agent: Agent) -> None:
    agent("rl_select_environment", name="sort_digits", runtime="tiny")
    for tool, (arguments, said) in REFUSED.items():
        answer = agent.refused(tool, **arguments)
        assert said in answer["error"], (tool, answer)
        assert answer["code"] in ("refused", "not_found"), (tool, answer)
        assert not answer["retryable"]


def drafted_by_trial_and_error(agent: Agent) -> str:
    """Looks around, learns what is locked and what is wrong, and ends with the wanted draft."""
    listed, _ = agent("rl_list_environments", query="sort_digits", runtime="tiny")[
        "environments"
    ]  # and a harness of it
    unknown = agent.refused("rl_select_environment", name="sort_digit", runtime="tiny")
    assert listed["name"] in unknown["available"]
    run_id: str = agent("rl_select_environment", name=listed["name"], runtime="tiny")["run_id"]
    locked = agent.refused("rl_edit_config", field="tokenizer_name", value="Qwen/Qwen3-8B")
    assert locked["locked_value"] == "bundled"
    wrong = agent.refused("rl_edit_config", values=SHORT | {"group_size": "many"})
    assert "group_size" in wrong["error"]
    assert [refusal["field"] for refusal in wrong["refusals"]] == ["spec.config.group_size"]
    assert "group_size" not in agent("rl_edit_config", field="total_steps", value=3)["config"]  # all or nothing
    assert agent("rl_edit_config", values=SHORT)["config"]["total_steps"] == 2
    fields = agent("rl_get_current_config")["configurable_fields"]
    assert {each["name"]: each.get("current_value") for each in fields}["group_size"] == 4
    dry = agent("rl_start_training", dry_run=True)
    assert (dry["run_id"], dry["status"], dry.get("refusals")) == (run_id, "draft", None)
    return run_id


# --- this machine ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def root(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder that the agents' servers share."""
    root = tmp_path_factory.mktemp("state")
    yield root
    end_everything(root)


def agent_here(root: Path, name: str, **env_vars: str) -> Any:
    return agent_over_stdio("--local", "--agent", name, env_vars={"RL_STATE_DIR": str(root), **env_vars})


@pytest.mark.nightly("operator/src/rl_operator/tools")
def test_an_agent_trains_a_model_on_this_machine(root: Path) -> None:
    """Really, with its server killed in the middle."""
    with ScriptedProvider() as provider:
        keys = {"RL_INFERENCE_URL": provider.url, "RL_INFERENCE_API_KEY": KEY}
        with agent_here(root, "first", **keys) as agent:
            assert "tiny" in agent("rl_health_check")["runtimes"]
            run_id = drafted_by_trial_and_error(agent)
            tried = agent("rl_test_inference", models=["right"], num_steps=1, group_size=2, wait_seconds=LONG)
            assert (tried["status"], tried["models"][0]["accuracy"]) == ("completed", 1.0)
            assert agent("rl_start_training")["status"] in ("pending", "starting")
    with agent_here(root, "second") as other:
        assert "you have drafted no run yet" in other.refused("rl_get_current_config")["error"]
        assert [run["run_id"] for run in other("rl_list_runs")["runs"]] == [run_id]
    with agent_here(root, "first") as agent:
        over = agent("rl_check_status", run_id=run_id, wait_seconds=LONG, until="finished")
        assert over["status"] == "completed", (over, agent("rl_get_logs"))
        reached = agent("rl_get_results")
        assert reached["run_id"] == run_id
        assert reached["weights"]["sampler_path"].startswith("tinker://")
        assert reached["final_metrics"]["step"] == SHORT["total_steps"]
        assert "step 2" in agent("rl_get_logs", grep="step 2")["untrusted_output"]
        assert agent("rl_start_training")["weights"] == reached["weights"]
        assert "nothing to stop" in agent("rl_stop_training", run_id=run_id)["message"]


def test_every_tool_refuses_on_this_machine_and_explains_what_to_do(root: Path) -> None:
    with agent_here(root, "wrong") as agent:
        everything_refused(agent)


@pytest.mark.process
def test_every_tool_reports_an_unreachable_cluster(tmp_path: Path) -> None:
    """And that the same call may be retried."""
    user, cluster = {"name": "u", "user": {"token": "t"}}, {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    contexts = [{"name": "away", "context": {"cluster": "c", "user": "u"}}]
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": contexts}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig | {"current-context": "away"}), encoding="utf-8")
    with agent_over_stdio(env_vars={"KUBECONFIG": str(file)}) as agent:
        for tool in BY_NAME:
            answer = agent.refused(tool, **RIGHT.get(tool, {}))
            assert (answer["code"], answer["retryable"]) == ("unreachable", True), (tool, answer)


# --- a cluster -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def kubeconfig(control_plane: ControlPlane, cluster_target: ClusterTarget) -> dict[str, str]:
    """The server's, which does nothing with its own rights."""
    return {"KUBECONFIG": str(control_plane.kubeconfig())}


@pytest.fixture(scope="module")
def tools_address(kubeconfig: dict[str, str]) -> Iterator[str]:
    with tools_server(env_vars=kubeconfig) as (address, _):
        yield address


@pytest.fixture
def namespace_with_key(runs: RunsNamespace) -> str:
    """With the key that runs need."""
    key = {"metadata": {"name": "tinker-service"}, "stringData": {"api-key": "tml-made-up-for-a-test"}}
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/secrets", key)
    return runs.namespace


@on_cluster
def test_every_tool_refuses_on_a_cluster_and_explains_what_to_do(tools_address: str, namespace_with_key: str) -> None:
    with agent_over_http(tools_address, ADMIN_TOKEN, namespace=namespace_with_key) as agent:
        everything_refused(agent)


@on_cluster
def test_the_documented_rights_of_an_agent_are_enough(
    tools_address: str, namespace_with_key: str, runs: RunsNamespace
) -> None:
    """And no more: other teams' objects stay theirs."""
    for document in yaml.safe_load_all(rights_of_the_page().replace("team-a", namespace_with_key)):
        runs.admin.post(path_of(document), document)
    token = runs.admin.post(f"/api/v1/namespaces/{namespace_with_key}/serviceaccounts/agent/token", {"spec": {}})
    with agent_over_http(tools_address, token["status"]["token"], namespace=namespace_with_key) as agent:
        run_id = drafted_by_trial_and_error(agent)
        [unseen] = agent("rl_start_training")["missing"]
        assert "it may be there" in unseen["why"]
        pod = runs.until_pod(name=run_id)
        runs.kubelet.start(pod)
        runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("succeeded", steps=2, total=2)))
        assert agent("rl_check_status", run_id=run_id, wait_seconds=SOON, until="finished")["status"] == "completed"
        assert agent("rl_get_results")["weights"]
        assert agent.refused("rl_test_inference")["code"] == "forbidden"  # creating Jobs means running anything
    with agent_over_http(tools_address, token["status"]["token"], namespace="default") as stranger:
        assert stranger.refused("rl_list_runs")["code"] == "forbidden"


def rights_of_the_page() -> str:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "serve-agents.md").read_text(encoding="utf-8")
    [rights] = [block for block in page.split("```yaml\n")[1:] if "kind: ClusterRole\n" in block]
    return rights.partition("```")[0]


def path_of(document: dict[str, Any]) -> str:
    """The path for creating objects of its kind."""
    version, metadata = document["apiVersion"], document["metadata"]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    folder = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{folder}/{document['kind'].lower()}s"
