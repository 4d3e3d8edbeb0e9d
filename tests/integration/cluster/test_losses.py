"""Lost pods: a node that is lost and comes back, and a pod that was removed by force."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.jumping_clock import JumpingClock
from tests.integration.cluster.kubelet import End, result, running
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace


def train(runs: RunsNamespace) -> str:
    return runs.until_training()


def delete(runs: RunsNamespace, pod: str, grace: int) -> None:
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{pod}"
    runs.admin.delete(path, {"gracePeriodSeconds": grace})


def test_a_forcibly_removed_pod_is_a_lost_attempt(runs: RunsNamespace) -> None:
    runs.apply()
    pod = train(runs)
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{pod}"
    runs.admin.patch(path, {"metadata": {"finalizers": None}})
    delete(runs, pod, 0)
    second = runs.until_pod(attempt=2)
    assert [attempt["reason"] for attempt in runs.status()["attempts"]] == ["PodLost"]
    runs.succeed(second, attempt=2)


_numbers = itertools.count(1)


@dataclass(frozen=True)
class Timed:
    """An operator whose clock the test can move, and the namespace that it serves."""

    runs: RunsNamespace
    clock: JumpingClock


@pytest.fixture
def timed(lonely_plane: ControlPlane, tmp_path: Path) -> Iterator[Timed]:
    namespace, clock = f"losses-{next(_numbers)}", JumpingClock(tmp_path)  # another one when it is run again
    lonely_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    flags = (*FAST, "--namespace", namespace)
    operator = OperatorProcess(lonely_plane.kubeconfig(), *flags, env_vars=clock.env_vars)
    try:
        operator.start()
        yield Timed(RunsNamespace(lonely_plane, namespace), clock)
    finally:
        print(operator.log[-6000:])  # shown with a failure
        operator.close()


def test_a_lost_node_that_returns_with_its_pod(timed: Timed) -> None:
    """It is waited for during the pod's grace period and another minute, which the test skips if there is a C compiler.
    Later reports of its kubelet are ignored.
    """
    runs = timed.runs
    runs.apply()
    first = train(runs)
    delete(runs, first, 1)  # as the taint manager does when a node is unreachable; its kubelet does not learn of it
    runs.until_reason("Reconciling", "PodDeleting")
    timed.clock.elapse(30)
    stays("it is waited for", lambda: runs.status()["attempt"] == 1)
    timed.clock.elapse(31)
    wait_for("the next attempt", lambda: runs.status().get("attempt") == 2, seconds=120)
    second = runs.until_pod(attempt=2)
    assert [attempt["reason"] for attempt in runs.status()["attempts"]] == ["NodeLost"]
    assert "failedAttempts" not in runs.status()
    runs.until_released(first)

    runs.kubelet.start(second)
    runs.kubelet.work(second)
    runs.until_phase("Running")
    # Nothing answers at its address, which is reported once.
    runs.until_reason("Ready", "Training", "cannot read the metrics")
    before = runs.writes()
    states = {name: running(ready=True) for name in ("api", "trainer", "environment")}
    runs.kubelet.write(first, "Running", states)
    late = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
    runs.kubelet.end(first, "Succeeded", trainer=End(0, late))
    stays("nothing is written", lambda: runs.writes() == before)
    runs.kubelet.remove(first)
    wait_for("the old pod is gone", lambda: runs.kubelet.pod(first) is None)
    runs.kubelet.end(second, "Succeeded", trainer=End(0, late))
    status = runs.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == ["NodeLost", "Succeeded"]
