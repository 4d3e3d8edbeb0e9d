"""rlctl against a real API server: the same verbs as on this machine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import ADMIN_TOKEN, GUEST, GUEST_TOKEN, RIGHTS, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.rlctl_calls import Call
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

RLCTL = Path(sys.executable).with_name("rlctl")

TINY = ("--runtime", "tiny")
"""Other tests leave runtimes of theirs, so there is not just one to choose."""


@pytest.fixture
def write_json_run(tmp_path: Path) -> Callable[..., str]:
    def write(**spec: Any) -> str:
        document = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": "sorting"},
            "spec": {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS}, **spec},
        }
        path = tmp_path / "run.json"
        path.write_text(json.dumps(document))
        return str(path)

    return write


def test_a_run_from_file_to_results(rlctl: Call, runs: RunsNamespace, write_json_run: Callable[..., str]) -> None:
    detached = rlctl("run", write_json_run(), "--detach")
    assert detached.returncode == 0, detached
    assert "cluster:" in detached.stdout
    pod = runs.until_pod()
    assert "is running: this follows it" in rlctl("run", write_json_run(), "--detach").stderr
    runs.succeed(pod)
    watched = rlctl("watch", "sorting")
    assert watched.returncode == 0, watched
    assert "tinker://m/sampler_weights/000004" in watched.stdout
    assert rlctl("wait", "sorting", "--timeout", "10").returncode == 0
    listed = rlctl("list")
    assert "Succeeded" in listed.stdout
    assert f"{TOTAL_STEPS}/{TOTAL_STEPS}" in listed.stdout
    shown = rlctl("get", "sorting")
    assert f"{runs.namespace}/sorting   Succeeded" in shown.stdout
    assert "Starting" in shown.stdout  # an event
    assert json.loads(rlctl("results", "sorting", "-o", "json").stdout)["phase"] == "Succeeded"
    writers = {each["manager"] for each in (runs.find() or {})["metadata"]["managedFields"]}
    assert writers == {"rlctl", "rl-operator"}
    again = rlctl("run", write_json_run(), "--detach")
    assert "so this is sorting-2" in again.stderr
    assert rlctl("delete", "sorting").returncode == 0
    assert rlctl("get", "sorting").returncode == 2
    rlctl("run", write_json_run(suspend=True), "--detach")
    runs.until_phase("Draft")
    wait_for("its own event is there", lambda: "  Draft  " in rlctl("get", "sorting").stdout)
    assert "Succeeded" not in rlctl("get", "sorting").stdout, "events of the deleted run of this name"


def test_a_failed_run_is_exit_code_1(rlctl: Call, runs: RunsNamespace, write_json_run: Callable[..., str]) -> None:
    rlctl("run", write_json_run(backoffLimit=0), "--detach")
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    message = result("failed", steps=0, total=TOTAL_STEPS, error={"class": "internal", "message": "boom"})
    runs.kubelet.end(pod, "Failed", trainer=End(1, message))
    watched = rlctl("watch", "sorting")
    assert watched.returncode == 1, watched
    assert "boom" in watched.stdout


def test_a_refused_run_is_exit_code_2(rlctl: Call, write_json_run: Callable[..., str]) -> None:
    refused = rlctl("run", write_json_run(runtime="tony"))
    assert refused.returncode == 2, refused
    assert "RuntimeNotFound: spec.runtime" in refused.stderr
    assert "tiny" in refused.stderr


def test_stop_leaves_a_resumable_run(rlctl: Call, runs: RunsNamespace, write_json_run: Callable[..., str]) -> None:
    rlctl("run", write_json_run(suspend=True), "--detach")
    runs.until_phase("Draft")
    stopped = rlctl("stop", "sorting")
    assert stopped.returncode == 0, stopped
    assert "cluster:" in stopped.stdout
    rlctl("run", write_json_run(), "--detach")
    assert runs.until_pod()


def test_read_only_commands_ask_the_cluster(rlctl: Call, write_json_run: Callable[..., str]) -> None:
    wait_for("the catalog is there", lambda: "bundled" in rlctl("environments", *TINY).stdout)
    for arguments in (
        ["validate", write_json_run()],
        ["environments", "sort_digits", *TINY],
        ["render", write_json_run()],
        ["init", "sort_digits", *TINY],
    ):
        ended = rlctl(*arguments)
        assert ended.returncode == 0, ended


def test_the_doctor_finds_the_cluster(control_plane: ControlPlane) -> None:
    env_vars = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(ADMIN_TOKEN))}
    ended = subprocess.run([RLCTL, "doctor"], env=env_vars, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended


CODE = Path("tests/data/environments/shout.py").read_text(encoding="utf-8")


@pytest.fixture
def write_documents(tmp_path: Path) -> Callable[..., str]:
    """ConfigMap, RLEnvironment and run in one file."""

    def write(code: str = CODE, **spec: Any) -> str:
        head = {"apiVersion": "rl-operator.dev/v1alpha1"}
        config = {"config": {"total_steps": TOTAL_STEPS}}
        documents = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"shout.py": code}},
            head
            | {
                "kind": "RLEnvironment",
                "metadata": {"name": "shout"},
                "spec": {"source": {"configMap": {"name": "code"}}},
            },
            head
            | {
                "kind": "RLTrainingRun",
                "metadata": {"name": "sorting"},
                "spec": {"environment": "own/shout", "runtime": "tiny", **config, **spec},
            },
        ]
        path = tmp_path / "documents.yaml"
        path.write_text("\n---\n".join(map(json.dumps, documents)))
        return str(path)

    return write


def test_dependencies_of_a_run_are_applied_with_it(
    rlctl: Call, runs: RunsNamespace, write_documents: Callable[..., str]
) -> None:
    file = write_documents()
    assert rlctl("validate", file).returncode == 0
    new = rlctl("diff", file)
    assert (new.returncode, "would be created" in new.stdout) == (1, True)
    planned = json.loads(rlctl("render", file, "-o", "json").stdout)["items"]
    detached = rlctl("run", file, "--detach")
    assert detached.returncode == 0, detached
    assert "RLEnvironment shout is applied (cluster:" in detached.stderr
    runs.until_pod()
    kinds = [item["kind"] for item in planned]
    assert kinds == ["ConfigMap", "ConfigMap", "NetworkPolicy", "NetworkPolicy", "Service", "Pod", "Pod"]
    listed = rlctl("environments", *TINY)
    assert re.search(r"^own/shout +Ready", listed.stdout, re.MULTILINE), listed
    assert "group_size" in rlctl("environments", "own/shout", *TINY).stdout
    again = rlctl("diff", file)
    assert again.returncode == 0, again
    frozen = rlctl("diff", write_documents(config={"total_steps": TOTAL_STEPS + 1}))
    assert frozen.returncode == 2, frozen
    assert "FrozenField: spec.config.total_steps: it is frozen since the run started" in frozen.stderr
    changed = rlctl("diff", write_documents(CODE.replace("group_size=4", "group_size=2")))
    assert changed.returncode == 1, changed
    assert "+        return ShoutConfig(group_size=2), []" in changed.stdout


def test_a_broken_file_is_refused_before_it_is_applied(rlctl: Call, write_documents: Callable[..., str]) -> None:
    refused = rlctl("validate", write_documents(CODE + "    def (:"))
    assert refused.returncode == 2, refused
    assert f"shout.py, line {len(CODE.splitlines()) + 1}" in refused.stderr


def test_a_local_file_is_not_an_environment_of_a_cluster(rlctl: Call, write_json_run: Callable[..., str]) -> None:
    refused = rlctl("validate", write_json_run(environment="./shout.py"))
    assert refused.returncode == 2, refused
    assert "rlctl init --from FILE.py" in refused.stderr


def test_a_draft_is_resumed(rlctl: Call, runs: RunsNamespace, write_json_run: Callable[..., str]) -> None:
    draft = rlctl("run", write_json_run(suspend=True))
    assert draft.returncode == 0, draft
    assert f"resume sorting -n {runs.namespace}" in draft.stdout
    assert rlctl("diff", write_json_run()).returncode == 1
    resumed = rlctl("resume", "sorting")
    assert (resumed.returncode, "sorting starts (cluster:" in resumed.stdout) == (0, True)
    runs.succeed(runs.until_pod())
    over = rlctl("resume", "sorting")
    assert (over.returncode, "startFrom: {run: sorting}" in over.stderr) == (2, True)


@pytest.fixture
def team_member(control_plane: ControlPlane, runs: RunsNamespace) -> Iterator[dict[str, str]]:
    """A user who may work in one namespace and see the runtimes, and nothing else."""
    admin, role = control_plane.admin, {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": GUEST}]
    rules = {
        "test-team": [{"apiGroups": ["rl-operator.dev"], "resources": ["*"], "verbs": ["get", "list"]}],
        "test-runtimes": [{"apiGroups": ["rl-operator.dev"], "resources": ["rlruntimes"], "verbs": ["get", "list"]}],
    }
    for name, rule in rules.items():
        admin.post(RIGHTS["ClusterRole"], {"metadata": {"name": name}, "rules": rule})
    bindings = {
        RIGHTS["RoleBinding"].format(namespace=runs.namespace): "test-team",
        RIGHTS["ClusterRoleBinding"]: "test-runtimes",
    }
    for path, name in bindings.items():
        body = {"metadata": {"name": name}, "subjects": subjects, "roleRef": {**role, "name": name}}
        admin.post(path, body)
    yield {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(GUEST_TOKEN))}
    for path, name in (*bindings.items(), *((RIGHTS["ClusterRole"], name) for name in rules)):
        admin.delete(f"{path}/{name}")


def test_a_user_with_few_permissions_is_told_what_was_used_instead(
    team_member: dict[str, str], runs: RunsNamespace, write_json_run: Callable[..., str]
) -> None:
    """Rights may take a moment to reach the API server, and a runtime to be reconciled."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": runs.namespace}}
    install_runtime(runs.admin, "tiny", "gated", namespaceSelector=selector)

    def validate() -> subprocess.CompletedProcess[str] | None:
        command = [RLCTL, "validate", write_json_run(runtime="gated"), "-n", runs.namespace]
        ended = subprocess.run(command, env=team_member, capture_output=True, text=True, timeout=60, check=False)
        return ended if ended.returncode != 3 else None

    ended = wait_for("the rights of a team's member hold", validate)
    assert ended.returncode == 0, ended
    assert "is accepted by runtime gated" in ended.stdout
    assert f"note: you may not read the labels of namespace {runs.namespace}" in ended.stderr


def test_the_queue_position_is_shown(rlctl: Call, runs: RunsNamespace) -> None:
    install_runtime(runs.admin, "tiny", "one-at-a-time", limits={"maxActiveRuns": 1})
    runs.apply("first", runtime="one-at-a-time")
    runs.until_pod(name="first")
    runs.apply("second", runtime="one-at-a-time")
    runs.until_reason("Reconciling", "Queued", name="second")
    assert "Pending (place 1)" in rlctl("list").stdout
    assert re.search(r"queue +place 1; 1 of 1 runs active at one-at-a-time", rlctl("get", "second").stdout)


def test_a_gitops_tool_that_would_revert_it_is_named(rlctl: Call, runs: RunsNamespace) -> None:
    runs.apply(suspend=True)
    runs.until_phase("Draft")
    path = f"{RUNS.format(namespace=runs.namespace)}/sorting"
    runs.admin.patch(path, {"metadata": {"labels": {"argocd.argoproj.io/instance": "runs"}}})
    stopped = rlctl("stop", "sorting", "--timeout", "0")
    assert (stopped.returncode, "warning: Argo CD application 'runs'" in stopped.stderr) == (0, True)
    assert "set spec.suspend: false there" in rlctl("resume", "sorting").stderr
    runs.until_pod()


def test_a_restored_run_is_resumed(rlctl: Call, runs: RunsNamespace) -> None:
    mark = "rl-operator.dev/started-as"
    runs.apply(suspend=True)
    runs.until_phase("Draft")
    path = f"{RUNS.format(namespace=runs.namespace)}/sorting"
    runs.admin.patch(path, {"metadata": {"annotations": {mark: "sorting.another-uid"}}})
    runs.until_reason("Suspended", "Restored")
    resumed = rlctl("resume", "sorting")
    assert "was restored from a backup and trains from the beginning" in resumed.stdout
    runs.until_pod()


def test_a_budget_is_in_the_currency_of_the_runtimes_prices(rlctl: Call, runs: RunsNamespace) -> None:
    prices = {"prefill": 0.1, "sample": 0.4, "train": 0.4, "currency": "EUR"}
    install_runtime(runs.admin, "tiny", f"priced-{runs.namespace}", backend={"prices": prices})
    runs.apply(suspend=True, runtime=f"priced-{runs.namespace}", budget={"amount": 20, "currency": "USD"})
    refused = runs.until_phase("Pending")["refusals"][0]
    assert (refused["field"], refused["given"], refused["allowed"]) == ("spec.budget.currency", "USD", "EUR")
    assert rlctl("resume", "sorting", "--budget", "30").returncode == 0
    assert (runs.find() or {})["spec"]["budget"] == {"amount": 30, "currency": "EUR"}
    trainer = (runs.kubelet.pod(runs.until_pod()) or {})["spec"]
    told = {each["name"]: each.get("value") for each in _trainer(trainer)["env"]}
    assert (told["RL_BUDGET"], '"EUR"' in told["RL_PRICES"]) == ("30.0", True)


def _trainer(pod: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in pod["containers"] if each["name"] == "trainer")
