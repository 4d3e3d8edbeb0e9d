"""Whose metrics a run's status shows, and its history past the pod: over HTTP, on a real API server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime
from tests.integration.cluster.trainer import trainer_status
from tests.wandb_server import ENTITY, WandbRun, WandbServer, running_wandb_server

from rl_operator.api.names import MANAGED_BY_LABEL

KEY = "k" * 40
UP = {"phase": "training", "step": 2, "totalSteps": TOTAL_STEPS, "metrics": {"rolloutReward": 0.61234}}


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """Served by a separate thread: the tests of a cluster are synchronous."""
    loop, started, over, servers = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), list[WandbServer]()

    async def serve() -> None:
        async with running_wandb_server() as server:
            servers.append(server)
            started.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60), "the W&B server does not start"
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="module")
def wandb() -> Iterator[WandbServer]:
    with wandb_server() as server:
        yield server


@pytest.fixture(scope="module")
def control_plane(lonely_plane: ControlPlane) -> ControlPlane:
    """Two operators without a lease would serve the same runs."""
    return lonely_plane


@pytest.fixture(scope="module")
def operator_process(control_plane: ControlPlane, wandb: WandbServer) -> Iterator[OperatorProcess]:
    """One with its own W&B key."""
    install_runtime(
        control_plane.admin, "tiny", "with-wandb",
        wandb={"entity": ENTITY, "project": "rl", "baseURL": wandb.url, "keySecret": {"name": "wandb", "key": "KEY"}},
    )  # fmt: skip
    process = OperatorProcess(
        control_plane.kubeconfig(), *FAST, "--wandb-seconds", "0.2", env_vars={"WANDB_API_KEY": KEY}
    )
    try:
        process.start()
        yield process
    finally:
        process.close()


def figures(runs: RunsNamespace, source: str) -> dict[str, Any]:
    """The metrics, once they come from that source."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = runs.status().get("metrics") or {}
        return found if found.get("source") == source else None

    return wait_for(f"figures come from {source}", look)


def series(runs: RunsNamespace) -> dict[str, Any]:
    name = runs.status()["historyName"]
    path = f"/api/v1/namespaces/{runs.namespace}/configmaps/{name}"
    return wait_for(f"ConfigMap {name}", lambda: runs.admin.find(path))


def steps(config_map: dict[str, Any]) -> list[int]:
    return [point["step"] for point in json.loads(config_map["data"]["history.json"])["points"]]


def test_the_trainers_metrics_then_wandbs_then_the_results(
    runs: RunsNamespace, wandb: WandbServer, operator_process: OperatorProcess
) -> None:
    uid = runs.apply(runtime="with-wandb")["metadata"]["uid"]
    summary = {"train/step": 3, "env/reward_mean": 0.7, "train/loss": 0.25}
    wandb.runs[uid] = WandbRun("rl", uid, summary=summary)
    pod, address = runs.until_pod(), "127.255.0.11"
    told = {"state": "running", "url": f"{wandb.url}/{ENTITY}/rl/runs/{uid}", "runId": uid}
    with trainer_status(runs, address, {**UP, "runUid": uid, "attempt": 1, "wandb": told}):
        runs.kubelet.start(pod, address)
        runs.kubelet.work(pod)
        assert figures(runs, "trainer")["rolloutReward"] == 0.6123
    wandb.runs[uid].state = "crashed"

    found = figures(runs, "wandb")
    assert (found["rolloutReward"], found["loss"]) == (0.7, 0.25)
    status = runs.until_phase("Running")
    assert status["progress"]["step"] == 3
    assert "The operator cannot read the metrics" in status["message"]
    wait_for("W&B's state is shown", lambda: runs.status()["wandb"]["state"] == "running; W&B says crashed")

    message = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, metrics={"rolloutReward": 0.9})
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, message))
    runs.until_phase("Succeeded")
    assert figures(runs, "result")["rolloutReward"] == 0.9
    assert KEY not in operator_process.log
    assert KEY not in json.dumps(runs.find())


def test_a_run_with_unreadable_metrics_is_not_disturbed(runs: RunsNamespace) -> None:
    """No reachable trainer, no W&B: it is reported, and the result has the metrics."""
    runs.apply(progressDeadlineSeconds=1)
    pod = runs.until_pod()
    runs.kubelet.start(pod, "127.255.0.12")
    runs.kubelet.work(pod)
    runs.until_phase("Running")  # the last thing that is written, if the deadline ends nothing
    wait_for("it is said", lambda: "the result, at the end" in (runs.status().get("message") or ""))
    writes = len(runs.writes())
    stays("the deadline that nobody can judge ends nothing", lambda: len(runs.writes()) == writes, seconds=3.0)
    assert runs.status()["phase"] == "Running"
    message = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, metrics={"rolloutReward": 0.9})
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, message))
    status = runs.until_phase("Succeeded")
    assert (status["metrics"]["source"], status["metrics"]["rolloutReward"]) == ("result", 0.9)
    assert "historyName" not in status


def test_the_history_of_all_attempts_outlives_their_pods(runs: RunsNamespace) -> None:
    run = runs.apply()
    first, address = runs.until_pod(), "127.255.0.13"
    points = [{"step": step, "rolloutReward": step / 10, "train/loss": 1.0} for step in (1, 2)]
    with trainer_status(runs, address, UP, series=points) as asked:
        runs.kubelet.start(first, address)
        runs.kubelet.work(first)
        figures(runs, "trainer")
        wait_for("the series is read", lambda: "/history" in asked)
    runs.kubelet.end(first, "Failed", trainer=End(1, result("failed", steps=1, total=TOTAL_STEPS)))
    second = runs.until_pod(attempt=2)
    kept = series(runs)
    assert steps(kept) == [1, 2]
    assert kept["metadata"]["name"] == f"sorting-{run['metadata']['uid'][:5]}-history"
    assert kept["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
    assert kept["metadata"]["labels"][MANAGED_BY_LABEL] == "rl-operator"

    with trainer_status(
        runs, address, {**UP, "step": 3}, series=[{"step": 2, "rolloutReward": 0.5}, {"step": 3}]
    ) as asked:
        runs.kubelet.start(second, address)
        runs.kubelet.work(second)
        wait_for("the series is read", lambda: "/history" in asked)
    message = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, attempt=2, metrics={"rolloutReward": 0.9})
    runs.kubelet.end(second, "Succeeded", trainer=End(0, message))
    runs.until_phase("Succeeded")
    runs.until_released(second)
    assert steps(series(runs)) == [1, 2, 3, TOTAL_STEPS]
    runs.kubelet.remove(second)
    of_first_life = json.loads(series(runs)["data"]["history.json"])["points"]
    assert of_first_life[0] == {"step": 1, "rolloutReward": 0.1}
    assert of_first_life[1] == {"step": 2, "rolloutReward": 0.5}
