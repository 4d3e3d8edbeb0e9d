"""rl_test_inference: with real processes on this machine, and as a Job that the real API server accepts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.control_plane import GUEST, GUEST_TOKEN, ControlPlane
from tests.integration.cluster.kubelet import End, running, waiting
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace, install_runtime
from tests.unit.rl_operator.tools.contexts import call_at
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

from rl_operator.local.state.layout import PodFolder
from rl_operator.local.state.locks import is_held
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext

LONG = 200
"""Seconds, on a machine that is busy."""

OWN_CODE = """
from helper import LETTERS
from tinker_atropos.environments.base import Environment, EnvironmentConfig


class Shout(Environment[str]):
    name = "shout"

    @classmethod
    def config_init(cls):
        return EnvironmentConfig(
            tokenizer_name="bundled", group_size=4, batch_size=8, total_steps=2, max_token_length=64
        ), []

    def training_items(self):
        return [LETTERS]

    def held_out_items(self):
        return [LETTERS[::-1]]

    def prompt(self, item):
        return [{"role": "user", "content": item}]

    def score(self, item, completion):
        return float(completion == "I like digits")
"""


def answer(context: CallContext, tool: str, **arguments: Any) -> dict[str, Any]:
    outcome = call_at(context, tool, **arguments)
    assert outcome.code is None, outcome.answer
    return outcome.answer


# --- this machine ---------------------------------------------------------------------------------------------------
@pytest.fixture
def provider_of_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        monkeypatch.setenv("RL_INFERENCE_URL", provider.url)
        monkeypatch.setenv("RL_INFERENCE_API_KEY", KEY)
        yield provider


def folder_of(context: CallContext, test_id: str) -> PodFolder:
    assert isinstance(context.target, LocalTarget)
    return context.target.layout.pod(context.namespace, test_id)


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.nightly("operator/src/rl_operator/tools")
def test_models_try_a_draft_with_its_edited_config(
    local_context: CallContext, provider_of_variables: ScriptedProvider
) -> None:
    answer(local_context, "rl_select_environment", name="sort_digits")
    answer(local_context, "rl_edit_config", field="max_token_length", value=31)
    tested = answer(
        local_context,
        "rl_test_inference",
        models=["qwen/qwen3-8b", "right", "404"],
        num_steps=2,
        group_size=4,
        wait_seconds=LONG,
        steps=True,
    )
    assert tested["status"] == "completed"
    assert tested["environment"] == "sort_digits"
    assert tested["test_config"] == {
        "num_steps": 2,
        "group_size": 4,
        "rollouts_per_model": 8,
        "total_rollouts": 24,
    }
    wrong, right, unknown = tested["models"]
    assert (wrong["scale"], wrong["accuracy"], wrong["state"]) == ("small", 0.0, "completed")
    assert (right["accuracy"], right["step_success_rate"], right["total_completions"]) == (1.0, 1.0, 8)
    assert [step["scores"] for step in right["steps"]] == [[1.0] * 4] * 2
    assert unknown["steps"][0]["error"] == "the provider answered 404: no: [redacted]"
    assert Path(right["log_file"]).read_text().count('"event": "step"') == 2
    assert tested["summary"]["output_directory"] == str(Path(right["log_file"]).parent)
    assert tested["summary"]["best_model"] == "right"
    assert {request["max_tokens"] for request in provider_of_variables.requests} == {
        31 - 1 - 17
    }  # 17: the prompt's tokens
    assert provider_of_variables.keys == {KEY}
    assert KEY not in json.dumps(tested)
    assert KEY.encode() not in written(folder_of(local_context, tested["test_id"]).root)


def test_an_own_environment_is_tried_with_prompts(
    local_context: CallContext, provider_of_variables: ScriptedProvider
) -> None:
    code = {"shout.py": OWN_CODE, "helper.py": 'LETTERS = "a b c"\n'}
    metadata = {"name": "shout", "namespace": local_context.namespace}
    local_context.target.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": code})
    spec = {"source": {"configMap": {"name": "shout", "entry": "shout.py"}}}
    kind = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLEnvironment"}
    local_context.target.apply({**kind, "metadata": metadata, "spec": spec})

    answer(local_context, "rl_select_environment", name="own/shout")
    prompts = ["a b c", "unknown"]
    tested = answer(local_context, "rl_test_inference", models=["wrong"], prompts=prompts, wait_seconds=LONG)
    [model] = tested["models"]
    known, unknown = model["steps"]
    assert known["responses"] == [{"text": "I like digits", "score": 1.0}]
    assert "no item of the environment asks this" in unknown["error"]
    assert tested["test_config"]["total_rollouts"] == 2
    assert {(request["max_tokens"], request["temperature"]) for request in provider_of_variables.requests} == {
        (256, 1.0)
    }


@pytest.mark.nightly("operator/src/rl_operator/tools")
def test_a_test_outlives_its_call_is_found_again_and_is_deleted_with_its_run(
    local_context: CallContext, provider_of_variables: ScriptedProvider
) -> None:
    run_id = answer(local_context, "rl_select_environment", name="sort_digits")["run_id"]
    tested = answer(local_context, "rl_test_inference", models=["hangs"], group_size=1)
    assert tested["status"] == "running"
    assert tested["next_check_in_seconds"] > 0
    again = answer(local_context, "rl_test_inference", models=["right"])
    assert again["test_id"] == tested["test_id"]
    assert "no other was started" in again["message"]
    wait_for("the model is asked", lambda: provider_of_variables.requests)
    assert answer(local_context, "rl_test_inference", test_id=tested["test_id"])["models"][0]["state"] == "running"

    [lock] = folder_of(local_context, tested["test_id"]).locks
    assert is_held(lock)
    local_context.target.delete(local_context.namespace, run_id)
    assert not is_held(lock)
    assert not folder_of(local_context, tested["test_id"]).root.exists()
    assert call_at(local_context, "rl_test_inference", test_id=tested["test_id"]).code == "refused"


# --- a cluster ------------------------------------------------------------------------------------------------------
PROVIDER = {
    "url": "https://models.example/v1",
    "keySecret": {"name": "provider", "key": "api-key"},
    "models": ["small", "large"],
}
RUNTIME = "tried"


@pytest.fixture(scope="module")
def runtime_with_provider(control_plane: ControlPlane, cluster_target: ClusterTarget) -> str:
    install_runtime(control_plane.admin, "tiny", RUNTIME, inference=PROVIDER)
    wait_for("its catalog", lambda: cluster_target.catalog(cluster_target.runtimes()[RUNTIME]))
    return RUNTIME


@pytest.fixture
def tried(cluster_context: CallContext, control_plane: ControlPlane, runtime_with_provider: str) -> CallContext:
    """A namespace that only admits restricted pods, with a provider's Secret, and a draft."""
    admin, namespace = control_plane.admin, f"/api/v1/namespaces/{cluster_context.namespace}"
    admin.patch(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    admin.post(f"{namespace}/secrets", {"metadata": {"name": "provider"}, "stringData": {"api-key": KEY}})
    answer(cluster_context, "rl_select_environment", name="sort_digits", runtime=runtime_with_provider)
    return cluster_context


def job_paths(context: CallContext) -> tuple[str, str]:
    return f"/apis/batch/v1/namespaces/{context.namespace}/jobs", f"/api/v1/namespaces/{context.namespace}/pods"


@pytest.fixture
def make_pod(tried: CallContext, runs: RunsNamespace) -> Callable[[str], str]:
    """What the Job controller does: a pod of the Job's template, which the API server must accept."""

    def make(test_id: str) -> str:
        jobs, pods = job_paths(tried)
        template = runs.admin.get(f"{jobs}/{test_id}")["spec"]["template"]
        metadata = {"name": f"{test_id}-x", "labels": template["metadata"]["labels"]}
        runs.admin.post(pods, {"metadata": metadata, "spec": template["spec"]})
        return f"{test_id}-x"

    return make


def step(number: int, scores: list[float]) -> str:
    figures = {"step": number, "completions": len(scores), "correct": sum(score > 0 for score in scores)}
    return json.dumps({"event": "step", **figures, "scores": scores, "seconds": 1.0}) + "\n"


@pytest.mark.apiserver
def test_a_job_of_the_caller_tries_the_models_of_the_runtime(
    tried: CallContext, runs: RunsNamespace, node: LogNode, make_pod: Callable[[str], str]
) -> None:
    tested = answer(tried, "rl_test_inference", num_steps=2, group_size=2)
    test_id = tested["test_id"]
    assert [model["state"] for model in tested["models"]] == ["waiting"] * 2
    job = runs.admin.get(f"{job_paths(tried)[0]}/{test_id}")
    [held] = [each for each in tried.target.jobs(tried.namespace, "") if each["metadata"]["name"] == test_id]
    assert held["metadata"]["uid"] == job["metadata"]["uid"]
    config_map = runs.admin.get(f"/api/v1/namespaces/{tried.namespace}/configmaps/{test_id}")
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert job["metadata"]["ownerReferences"][0]["name"] == tested["run_id"]
    assert KEY not in json.dumps([job, config_map, tested])

    pod = make_pod(test_id)
    runs.kubelet.bind(pod)
    unmade = waiting("CreateContainerConfigError", 'secret "provider" not found')
    runs.kubelet.write(pod, "Pending", {"model-0": unmade, "model-1": unmade})
    told = answer(tried, "rl_test_inference", test_id=test_id)["models"][0]
    assert told["error"] == 'CreateContainerConfigError: secret "provider" not found'

    node.logs[f"{tried.namespace}/{pod}/model-0"] = step(1, [1.0, 0.0])
    node.logs[f"{tried.namespace}/{pod}/model-1"] = "Killed by sk-0123456789abcdef\n" + step(1, [0.0, 0.0])
    ended = {"state": End(137, reason="OOMKilled").state, "ready": False}
    runs.kubelet.write(pod, "Running", {"model-0": running(ready=True), "model-1": ended})
    going = answer(tried, "rl_test_inference")  # of the same run: nothing is started twice
    assert (going["test_id"], going["status"]) == (test_id, "running")
    assert going["models"][0]["accuracy"] == 0.5
    killed = going["models"][1]
    assert (killed["state"], killed["error"]) == ("failed", "it ended before its summary: exited (137) OOMKilled")
    assert killed["stderr"] == "Killed by [redacted]\n"
    assert killed["total_completions"] == 2
    assert killed["log_file"] == f"kubectl -n {tried.namespace} logs {pod} -c model-1"

    node.logs[f"{tried.namespace}/{pod}/model-0"] += step(2, [1.0, 1.0]) + '{"event": "summary", "accuracy": 0.75}\n'
    runs.kubelet.end(pod, "Failed", **{"model-1": End(137, reason="OOMKilled")})
    over = answer(tried, "rl_test_inference", test_id=test_id, wait_seconds=60)
    assert (over["status"], over["summary"]["avg_accuracy"]) == ("completed", 0.375)


def right(group: str, resource: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def allow(admin: AdminClient, namespace: str, *rules: dict[str, Any]) -> None:
    """Give the guest these rights in the namespace, and those of reading runs and runtimes."""
    kinds = right("rl-operator.dev", "*", "get", "list")
    rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    user = {"kind": "User", "name": GUEST, "apiGroup": group}
    role, metadata = {"apiGroup": group, "kind": "Role", "name": "few"}, {"metadata": {"name": "few"}}
    admin.post(f"{rbac}/namespaces/{namespace}/roles", {**metadata, "rules": [kinds, *rules]})
    binding = {**metadata, "roleRef": role, "subjects": [user]}
    admin.post(f"{rbac}/namespaces/{namespace}/rolebindings", binding)
    cluster = {"metadata": {"name": f"few-{namespace}"}}
    admin.post(f"{rbac}/clusterroles", {**cluster, "rules": [kinds]})
    cluster_role = {"apiGroup": group, "kind": "ClusterRole", "name": f"few-{namespace}"}
    admin.post(f"{rbac}/clusterrolebindings", {**cluster, "roleRef": cluster_role, "subjects": [user]})


LOOKING = right("batch", "jobs", "get", "list")
RIGHTS = {
    "no Job": ((LOOKING,), "cannot create resource"),
    "no ConfigMap": ((LOOKING, right("batch", "jobs", "create", "delete")), "cannot create resource"),
}


@pytest.mark.apiserver
@pytest.mark.parametrize(("rules", "said"), RIGHTS.values(), ids=RIGHTS)
def test_a_caller_without_the_rights_learns_which_and_leaves_nothing_behind(
    tried: CallContext, runs: RunsNamespace, rules: tuple[dict[str, Any], ...], said: str
) -> None:
    assert isinstance(tried.target, ClusterTarget)
    allow(runs.admin, tried.namespace, *rules)
    [run] = tried.target.runs(tried.namespace, "")
    target = tried.target.acting_as(GUEST_TOKEN)
    try:
        context = CallContext(target, tried.namespace)
        # Rights are granted at once, but the authorizer learns of them a moment later.
        wait_for("the rights hold", lambda: call_at(context, "rl_test_inference", test_id="x").code == "refused")
        outcome = call_at(context, "rl_test_inference", run_id=run["metadata"]["name"])
    finally:
        target.close()
    assert outcome.code == "forbidden", outcome.answer
    assert f"in namespace {tried.namespace}" in outcome.answer["error"]
    assert said in outcome.answer["error"]
    left = [job for job in runs.admin.items(job_paths(tried)[0]) if "deletionTimestamp" not in job["metadata"]]
    assert left == []
