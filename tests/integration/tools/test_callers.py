"""The gateway in front of a real API server: it only does for a caller what the caller may do."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import ADMIN_TOKEN, POWERLESS_TOKEN, ControlPlane
from tests.integration.tools.agents import RLCTL, tools_server
from tests.integration.tools.page_server import VIEWS, made_team
from tests.unit.rl_operator.tools.gateways import Gateway

from rl_operator.tools.toolset import TOOLS

pytestmark = pytest.mark.apiserver

ARGUMENTS: dict[str, dict[str, Any]] = {
    "rl_select_environment": {"name": "sort_digits", "runtime": "tiny"},
    "rl_edit_config": {"run_id": "of-callers-a", "field": "group_size", "value": 8},
    "rl_sample": {"run_id": "of-callers-a", "prompt": "sort 4 1 3 2"},
    "rl_list_environments": {"runtime": "tiny"},
    "rl_list_runs": {},
    "rl_compare": {"run_ids": ["of-callers-a", "of-callers-b"]},
    "rl_health_check": {},
}
"""Of the tools that take more or less than a run."""


@pytest.fixture(scope="module")
def admin_gateway(control_plane: ControlPlane) -> Iterator[Gateway]:
    """Its own kubeconfig is an administrator's, with a client certificate."""
    env_vars = {"KUBECONFIG": str(control_plane.certificate_kubeconfig())}
    with tools_server(env_vars=env_vars) as (address, process):
        yield Gateway(address, ADMIN_TOKEN, process)


@pytest.fixture(scope="module")
def team_tokens(control_plane: ControlPlane) -> dict[str, str]:
    """Tokens of a team's service accounts, by team: each may read its own team's runs."""
    return {team: made_team(control_plane.admin, team, VIEWS) for team in ("callers-a", "callers-b")}


def call(gateway: Gateway, tool: str, arguments: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Over MCP; the tool's answer."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
        "X-RL-Namespace": namespace,
    }
    answer: dict[str, Any] = gateway.ask("POST", "/mcp", message, headers).json["result"]["structuredContent"]
    return answer


def test_a_caller_sees_only_the_runs_of_their_own_team(admin_gateway: Gateway, team_tokens: dict[str, str]) -> None:
    for team, other in (("callers-a", "callers-b"), ("callers-b", "callers-a")):
        agent = replace(admin_gateway, token=team_tokens[team])
        seen = agent.ask("GET", "/runs", headers={"X-RL-Namespace": team})
        assert (seen.status, [run["run_id"] for run in seen.json["runs"]]) == (200, [f"of-{team}"])
        refused = agent.ask("GET", "/runs", headers={"X-RL-Namespace": other})
        assert (refused.status, refused.json["code"]) == (403, "forbidden")
        assert f"system:serviceaccount:{team}:viewer" in refused.json["error"]


def test_a_caller_with_read_access_may_not_write(
    admin_gateway: Gateway, team_tokens: dict[str, str], control_plane: ControlPlane
) -> None:
    agent, namespace = replace(admin_gateway, token=team_tokens["callers-a"]), {"X-RL-Namespace": "callers-a"}
    before = control_plane.admin.items(RUNS.format(namespace="callers-a"))
    for path, body in (
        ("/runs", {"run_id": "of-callers-a"}),
        ("/config", {"run_id": "of-callers-a", "field": "group_size", "value": 8}),
        ("/environments/sort_digits/select", None),
    ):
        refused = agent.ask("POST", path, body, namespace)
        assert (refused.status, refused.json["code"]) == (403, "forbidden"), (path, refused.text)
    assert control_plane.admin.items(RUNS.format(namespace="callers-a")) == before


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_no_tool_lends_out_the_gateways_rights(
    admin_gateway: Gateway, team_tokens: dict[str, str], control_plane: ControlPlane, tool: Any
) -> None:
    """The caller may do nothing; the gateway's own certificate would allow everything."""
    before = control_plane.admin.items(RUNS.format(namespace="callers-a"))
    nobody = replace(admin_gateway, token=POWERLESS_TOKEN)
    answer = call(nobody, tool.name, ARGUMENTS.get(tool.name, {"run_id": "of-callers-a"}), "callers-a")
    if tool.name != "rl_health_check":  # it says what it cannot see
        assert answer["code"] == "forbidden", answer
    assert "sort_digits" not in str(answer)
    assert control_plane.admin.items(RUNS.format(namespace="callers-a")) == before


def test_the_gateway_itself_may_do_everything(control_plane: ControlPlane, team_tokens: dict[str, str]) -> None:
    """Otherwise the tests above would prove nothing."""
    env_vars = os.environ | {"KUBECONFIG": str(control_plane.certificate_kubeconfig())}
    listed = subprocess.run(
        [RLCTL, "list", "-n", "callers-a"], env=env_vars, capture_output=True, text=True, check=True
    )
    assert "of-callers-a" in listed.stdout


@pytest.mark.parametrize("token", ["", "unknown-token-of-a-stranger", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."])
def test_callers_without_a_valid_token_are_rejected(admin_gateway: Gateway, token: str) -> None:
    refused = replace(admin_gateway, token=token).ask("GET", "/runs")
    assert (refused.status, refused.json["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize(
    "run_id",
    ["../../pods/x", "..", "sorting/status", "sorting?fieldManager=x", "a b", "ä", "-", "sorting%2Fstatus"],
)
def test_a_runs_name_does_not_lead_out_of_the_namespace(
    admin_gateway: Gateway, team_tokens: dict[str, str], run_id: str
) -> None:
    """Even for a caller with all rights."""
    answer = call(admin_gateway, "rl_check_status", {"run_id": run_id}, "callers-a")
    assert "no run" in answer["error"], answer
