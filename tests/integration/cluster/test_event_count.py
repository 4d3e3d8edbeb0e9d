"""Events over a whole run, including three restarts: few, each recorded once."""

from collections import Counter
from typing import Any

import pytest
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

Said = tuple[str, str]


def events(runs: RunsNamespace) -> list[dict[str, Any]]:
    return runs.admin.items(f"/apis/events.k8s.io/v1/namespaces/{runs.namespace}/events")


def said(runs: RunsNamespace) -> Counter[Said]:
    """How often each kind of Event was recorded, including repeats counted in one Event."""
    counted: Counter[Said] = Counter()
    for event in events(runs):
        counted[event["type"], event["reason"]] += (event.get("series") or {}).get("count", 1)
    return counted


def until_said(runs: RunsNamespace, kind: str, reason: str, times: int) -> None:
    try:
        wait_for(f"{kind} {reason} was said {times} times", lambda: said(runs)[kind, reason] == times)
    except AssertionError as error:
        raise AssertionError(f"{error}; said: {dict(said(runs))}") from None


@pytest.mark.nightly("operator/src/rl_operator/reconcile")
def test_a_run_with_two_failures_and_three_restarts(runs: RunsNamespace, operator: OperatorProcess) -> None:
    def restart() -> None:
        before = said(runs)
        operator.kill()
        operator.start()
        stays("nothing is said again", lambda: said(runs) == before)

    runs.apply(backoffLimit=1)
    for attempt in (1, 2):
        pod = runs.until_training(attempt)
        until_said(runs, "Normal", "Training", attempt)
        restart()
        runs.kubelet.end(pod, "Failed", trainer=End(1, result("running", steps=attempt, total=TOTAL_STEPS)))
    runs.until_phase("Failed")
    runs.until_released(pod)
    until_said(runs, "Warning", "TrainerFailed", 1)
    restart()
    assert said(runs) == {
        ("Normal", "Starting"): 2,
        ("Normal", "Training"): 2,
        ("Warning", "BackOff"): 1,
        ("Warning", "TrainerFailed"): 1,
    }
