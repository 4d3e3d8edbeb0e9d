"""Runs as agents start, follow, stop and read them: on a real API server with pods that the test plays, and on this
machine with real processes whose containers are scripts.
"""

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.runs import RunsNamespace
from tests.integration.local.scripted import WORKS_ON, start_scripted
from tests.unit.rl_operator.tools.contexts import call_at

from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import Outcome

NOT_HANGING = 60.0
"""Seconds; what should come at once."""

KEY = {"metadata": {"name": "tinker-service"}, "stringData": {"api-key": "tml-made-up-for-a-test"}}
"""What the runtime `tiny` needs in the namespace of its runs."""

on_cluster = pytest.mark.apiserver

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Caller:
    """Calls tools at a context; `later` while the test plays what the call waits for."""

    context: CallContext
    threads: ThreadPoolExecutor

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        outcome = self.outcome(tool, **arguments)
        assert outcome.code is None, outcome.answer
        return outcome.answer

    def outcome(self, tool: str, **arguments: Any) -> Outcome:
        return call_at(self.context, tool, **arguments)

    def later(self, tool: str, **arguments: Any) -> "Future[Outcome]":
        return self.threads.submit(partial(self.outcome, tool, **arguments))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


# --- on a cluster -------------------------------------------------------------------------------------------------
@pytest.fixture
def caller(cluster_context: CallContext, threads: ThreadPoolExecutor) -> Caller:
    return Caller(cluster_context, threads)


@pytest.fixture
def drafted(caller: Caller, runs: RunsNamespace) -> str:
    """With the key that it needs."""
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/secrets", KEY)
    run_id: str = caller("rl_select_environment", name="sort_digits", runtime="tiny")["run_id"]
    caller("rl_edit_config", field="total_steps", value=4)
    return run_id


@pytest.fixture
def training_run(caller: Caller, runs: RunsNamespace, drafted: str) -> str:
    """A started run that trains; returns its name."""
    caller("rl_start_training")
    runs.until_training(name=drafted)
    return drafted


@on_cluster
def test_from_a_draft_to_the_weights(caller: Caller, runs: RunsNamespace, drafted: str) -> None:
    dry = caller("rl_start_training", dry_run=True)
    assert (dry["status"], dry["missing"]) == ("draft", [])
    started = caller("rl_start_training")
    assert (started["run_id"], started["config"]["total_steps"]) == (drafted, 4)
    waiting = caller.later("rl_check_status", run_id=drafted, wait_seconds=NOT_HANGING, until="finished")
    pod = runs.until_pod(name=drafted)
    assert started["config_path"] == f"ConfigMap {runs.namespace}/{runs.status(drafted)['configMapName']}"
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running", drafted)
    assert caller("rl_start_training")["status"] == "running"
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("succeeded", steps=4, total=4)))
    over = waiting.result(NOT_HANGING).answer
    assert (over["status"], over["processes"]["trainer"]) == ("completed", "exited (0)")
    answer = caller("rl_get_results")
    assert answer["weights"]["sampler_path"] == "tinker://m/sampler_weights/000004"
    assert caller("rl_list_runs", status="completed")["runs"][0]["run_id"] == drafted
    generation = (runs.find(drafted) or {})["metadata"]["generation"]
    again = caller("rl_start_training")
    assert again["weights"] == answer["weights"]
    assert (runs.find(drafted) or {})["metadata"]["generation"] == generation
    assert caller("rl_list_runs", status="completed")["count"] == 1


@on_cluster
def test_a_run_without_the_backends_key_is_not_started(caller: Caller, runs: RunsNamespace) -> None:
    name = caller("rl_select_environment", name="sort_digits", runtime="tiny")["run_id"]
    refused = caller.outcome("rl_start_training")
    assert refused.code == "refused"
    assert f"kubectl -n {runs.namespace} create secret generic tinker-service" in refused.answer["error"]
    assert (runs.find(name) or {})["spec"]["suspend"] is True
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/secrets", KEY)
    assert caller("rl_start_training")["missing"] == []


@on_cluster
def test_stop_and_resume(caller: Caller, runs: RunsNamespace, training_run: str) -> None:
    stopping = caller.later("rl_stop_training", run_id=training_run)
    pod = runs.until_pod(name=training_run)
    runs.until_phase("Stopping", training_run)
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("stopped", steps=2, total=4)))
    stopped = stopping.result(NOT_HANGING).answer
    assert (stopped["status"], stopped["checkpoint"]["step"]) == ("stopped", 2)
    assert stopped["resume"] == f"rl_start_training(run_id='{training_run}')"
    assert "nothing to stop" in caller("rl_stop_training", run_id=training_run)["message"]
    assert "continues from step 2" in caller("rl_start_training")["message"]
    assert runs.until_pod(2, training_run)


@on_cluster
def test_logs_from_a_node(caller: Caller, runs: RunsNamespace, training_run: str, node: LogNode) -> None:
    pod = runs.until_pod(name=training_run)
    node.logs[f"{runs.namespace}/{pod}"] = "step 1\n\x1b[31merror: tml-made-up-for-a-test\x1b[0m\nstep 2\n"
    assert caller("rl_get_logs", tail=2)["untrusted_output"] == "error: [redacted]\nstep 2"
    assert caller("rl_get_logs", grep="^step")["untrusted_output"] == "step 1\nstep 2"


@on_cluster
def test_health_of_a_cluster(caller: Caller, runs: RunsNamespace) -> None:
    answer = caller("rl_health_check")
    assert answer["versions"]["kubernetes"].startswith("v1.")
    assert "tiny" in answer["runtimes"]
    assert "no Deployment" in answer["operator"]
    assert {"tinker-service", "rl-operator"} <= {each["name"] for each in answer["missing"]}
    deployment = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}
    deployment["template"]["spec"] = {"containers": [{"name": "o", "image": "i"}]}  # type: ignore[assignment]
    labels = {"app.kubernetes.io/name": "rl-operator"}
    path = f"/apis/apps/v1/namespaces/{runs.namespace}/deployments"
    runs.admin.post(path, {"metadata": {"name": "o", "labels": labels}, "spec": deployment})
    assert caller("rl_health_check")["operator"] == f"0 of 1 replicas are ready in namespace {runs.namespace}"
    runs.admin.delete(f"{path}/o")


# --- on this machine ----------------------------------------------------------------------------------------------
@pytest.fixture
def here(local_target: LocalTarget, threads: ThreadPoolExecutor) -> Caller:
    return Caller(CallContext(local_target, "default"), threads)


def scripted(here: Caller, trainer: str, environment: str) -> str:
    assert isinstance(here.context.target, LocalTarget)
    name = f"scripted-{next(_numbers)}"
    start_scripted(here.context.target._store, name, trainer=trainer, environment=environment)
    return name


def test_a_local_run_is_stopped_and_deleted(here: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-made-up-for-a-test")
    name = scripted(here, WORKS_ON, WORKS_ON)
    for _ in range(20):  # changes
        if here("rl_check_status", run_id=name, wait_seconds=NOT_HANGING)["status"] == "running":
            break
    assert here("rl_stop_training", run_id=name)["status"] in ("stopping", "stopped")  # a busy machine is slow
    stopped = here("rl_check_status", run_id=name, wait_seconds=NOT_HANGING, until="finished")
    assert (stopped["status"], stopped["checkpoint_step"]) == ("stopped", 3)
    assert "continues from step 3" in here("rl_start_training", run_id=name)["message"]
    waiting = here.later("rl_check_status", run_id=name, wait_seconds=240, until="finished")
    here.context.target.delete("default", name)
    assert waiting.result(NOT_HANGING).code == "not_found"
