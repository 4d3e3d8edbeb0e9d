"""Whoever may read a run reads it, whatever else they may not: the page, the tools and rlctl leave out what takes a
right that is missing, and name it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.control_plane import RBAC_GROUP, RIGHTS, ControlPlane
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.rlctl_calls import rlctl_in
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace
from tests.integration.tools.page_server import page_server

from rl_operator.targets.cluster_target import ClusterTarget

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1200)]

Right = tuple[str, str, str]
OURS = "rl-operator.dev"
LIST_RUNS: Right = (OURS, "rltrainingruns", "list")
LIST_EVENTS: Right = ("events.k8s.io", "events", "list")
LIST_PODS: Right = ("", "pods", "list")
GET_LOGS: Right = ("", "pods/log", "get")
GET_CONFIG_MAPS: Right = ("", "configmaps", "get")
GET_ENVIRONMENTS: Right = (OURS, "rlenvironments", "get")
LIST_ENVIRONMENTS: Right = (OURS, "rlenvironments", "list")
LIST_RUNTIMES: Right = (OURS, "rlruntimes", "list")

REFUSED: dict[Right, set[str]] = {
    LIST_RUNS: {"/ui/runs?namespace={}", "rl_list_runs", "rlctl list"},
    LIST_EVENTS: set(),
    LIST_PODS: {"rl_get_rollouts", "rlctl rollouts"},
    GET_LOGS: {"/ui/runs/{}/sorting/log", "/ui/runs/{}/sorting/log?container=environment", "rl_get_logs", "rlctl logs"},
    GET_CONFIG_MAPS: {"rl_get_rollouts", "rlctl rollouts"},
    GET_ENVIRONMENTS: set(),
    LIST_ENVIRONMENTS: set(),
    LIST_RUNTIMES: {"rl_list_environments", "rl_get_current_config", "rlctl environments", "rlctl validate"},
}
"""What is about that alone, and says so. All else is read as with every right."""

PAGES = (
    "/ui/runs?namespace={}",
    "/ui/runs/{}/sorting",
    "/ui/runs/{}/sorting?part=live",
    "/ui/runs/{}/sorting/points",
    "/ui/runs/{}/sorting/config?part=1",
    "/ui/runs/{}/sorting/log",
    "/ui/runs/{}/sorting/log?container=environment",
    "/ui/runs/{}/sorting/rollouts",
    "/ui/runs/{}/sorting/talk",
    "/ui/compare?run={}/sorting&run={}/second",
    "/ui/runs/{}/absent",
)
CALLS: dict[str, dict[str, Any]] = {
    "rl_list_environments": {"runtime": "tiny"},
    "rl_get_current_config": {"run_id": "second"},
    "rl_check_status": {"run_id": "sorting"},
    "rl_get_logs": {"run_id": "sorting"},
    "rl_get_results": {"run_id": "sorting"},
    "rl_get_rollouts": {"run_id": "sorting"},
    "rl_list_runs": {},
    "rl_compare": {"run_ids": ["sorting", "second"]},
    "rl_health_check": {},
}
COMMANDS = ("get", "results", "list", "logs", "rollouts", "environments", "validate", "diff", "compare")


@dataclass(frozen=True)
class Reader:
    """A service account of the namespace, and what it is told: whether that is an answer, and its text."""

    namespace: str
    token: str
    address: str
    rlctl: Callable[..., Any]
    file: Path

    def page(self, path: str) -> tuple[str, str]:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/html"}
        answer = httpx.get(self.address + path.replace("{}", self.namespace), headers=headers, timeout=60)
        return str(answer.status_code), answer.text

    def tool(self, name: str) -> tuple[str, str]:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
            "X-RL-Namespace": self.namespace,
        }
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": CALLS[name]}}
        answer = httpx.post(f"{self.address}/mcp", headers=headers, json=call, timeout=60)
        content = answer.json()["result"]["structuredContent"]
        return content.get("code", "answered"), json.dumps(content)

    def command(self, verb: str) -> tuple[str, str]:
        runs, file = ["sorting", "second"], [str(self.file)]
        arguments = {"environments": ["--runtime", "tiny"], "list": [], "compare": runs, "validate": file, "diff": file}
        done = self.rlctl(verb, *arguments.get(verb, ["sorting"]))
        return str(done.returncode), done.stdout + done.stderr

    def everything(self) -> Iterator[tuple[str, tuple[str, str]]]:
        yield from ((path, self.page(path)) for path in PAGES)
        yield from ((name, self.tool(name)) for name in CALLS)
        yield from ((f"rlctl {verb}", self.command(verb)) for verb in COMMANDS)


Scene = Callable[[Right | None], Reader]


@pytest.fixture(scope="module")
def team_scene(
    control_plane: ControlPlane,
    operator_process: OperatorProcess,
    cluster_target: ClusterTarget,
    node: LogNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """Readers by the right that they lack, in a namespace with a finished run and a draft."""
    del operator_process, cluster_target  # it works, and the catalog is there
    folder, admin = tmp_path_factory.mktemp("rights"), control_plane.admin
    admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    runs = RunsNamespace(control_plane, NAMESPACE)
    runs.apply()
    pod = runs.until_pod()
    node.logs[f"{NAMESPACE}/{pod}"] = "step 1\n"
    runs.succeed(pod)
    runs.apply("second", suspend=True)
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS, "group_size": 8}}
    kind = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": "sorting"}}
    file = folder / "run.json"
    file.write_text(json.dumps({**kind, "spec": spec}), encoding="utf-8")
    with page_server(control_plane, folder, NAMESPACE) as address:

        def reader(lacked: Right | None) -> Reader:
            token = token_without(admin, lacked)
            made = Reader(NAMESPACE, token, address, rlctl_in(control_plane, NAMESPACE, token), file)
            wait_for("the rights hold", lambda: made.page(PAGES[1])[0] == "200")
            return made

        yield reader


NAMESPACE = "test-rights"


def token_without(admin: AdminClient, lacked: Right | None) -> str:
    """Of a service account of its own."""
    name = "-".join(("lacks", *lacked)).replace("/", "-").replace("--", "-") if lacked else "lacks-nothing"
    held = [(OURS, "rltrainingruns", "get"), *(right for right in REFUSED if right != lacked)]
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in held]
    of_cluster = [rule for rule in rules if rule["resources"] == ["rlruntimes"]]
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    admin.post(accounts, {"metadata": {"name": name}})
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]
    for kind, granted in (("ClusterRole", of_cluster), ("Role", rules)):
        metadata, role = {"metadata": {"name": name}}, {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}
        admin.post(RIGHTS[kind].format(namespace=NAMESPACE), {**metadata, "rules": granted})
        binding = {**metadata, "roleRef": role, "subjects": subjects}
        admin.post(RIGHTS[f"{kind}Binding"].format(namespace=NAMESPACE), binding)
    token: str = admin.post(f"{accounts}/{name}/token", {"spec": {}})["status"]["token"]
    return token


@pytest.fixture(scope="module")
def usual(team_scene: Scene) -> dict[str, str]:
    """What a reader with every right is told."""
    everybody = team_scene(None)
    wait_for("all rights hold", lambda: everybody.page(PAGES[0])[0] == "200")
    return {what: told for what, (told, _) in everybody.everything()}


IN_MERGE = (LIST_RUNS, LIST_EVENTS)
nightly = pytest.mark.nightly(
    "operator/src/rl_operator/tools", "operator/src/rl_operator/ui", "operator/src/rl_operator/cli"
)


@pytest.mark.parametrize(
    "right",
    [pytest.param(right, id=" ".join(right), marks=() if right in IN_MERGE else nightly) for right in REFUSED],
)
def test_what_a_missing_right_is_not_about_is_shown(team_scene: Scene, usual: dict[str, str], right: Right) -> None:
    reader = team_scene(right)
    answers = dict(reader.everything())
    differ = {what for what, (told, _) in answers.items() if told != usual[what]}
    assert differ == REFUSED[right], {what: answers[what] for what in differ ^ REFUSED[right]}
    for what in differ:
        assert right[1].partition("/")[0] in answers[what][1], (what, answers[what])
    if right == LIST_EVENTS:
        takes = f"that takes the right to list events of events.k8s.io in namespace {NAMESPACE}."
        for what in (PAGES[1], "rlctl get"):
            assert f"What happened is not shown: {takes}" in answers[what][1]
