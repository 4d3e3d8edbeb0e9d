"""A run that starts from another one, on a real API server."""

from typing import Any

from tests.integration.cluster.kubelet import TRAINER, End
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

STATE = f"tinker://m/weights/{TOTAL_STEPS:06d}"


def told(runs: RunsNamespace, pod: str) -> dict[str, str]:
    """The start variables of a pod's trainer."""
    found: dict[str, Any] | None = runs.kubelet.pod(pod)
    variables = next(c for c in found["spec"]["containers"] if c["name"] == TRAINER)["env"]
    return {v["name"]: v["value"] for v in variables if v["name"].startswith(("RL_START_FROM", "RL_PARENT_"))}


def refusal(runs: RunsNamespace, name: str, words: str) -> dict[str, Any]:
    """The run's first refusal, once it is in the status."""

    def look() -> dict[str, Any] | None:
        first: dict[str, Any] = next(iter(runs.status(name).get("refusals", ())), {})
        return first if words in first.get("hint", "") else None

    found = wait_for(f"run {name} is refused with {words!r}", look)
    assert (found["code"], found["field"]) == ("StartFromRefused", "spec.startFrom.run")
    return found


def test_a_child_waits_for_its_parent_and_starts_from_its_weights(runs: RunsNamespace) -> None:
    runs.apply("child", startFrom={"run": "sorting", "withOptimizer": True})
    refusal(runs, "child", "there is no such run")
    uid = runs.apply()["metadata"]["uid"]
    refusal(runs, "child", "not over: start from it once it is")
    runs.succeed(runs.until_pod())

    pod = runs.until_pod(name="child")
    status = runs.status("child")
    assert status["startedFrom"] == {"run": "sorting", "uid": uid, "step": TOTAL_STEPS, "statePath": STATE}
    assert "refusals" not in status or status["refusals"] == []
    first = told(runs, pod)
    assert first == {
        "RL_START_FROM": STATE,
        "RL_START_FROM_OPTIMIZER": "1",
        "RL_PARENT_RUN": "sorting",
        "RL_PARENT_STEP": str(TOTAL_STEPS),
    }

    runs.delete()  # the parent is no longer needed
    runs.kubelet.start(pod)
    runs.kubelet.end(pod, "Failed", trainer=End(1, "bug"))
    second = runs.until_pod(attempt=2, name="child")
    assert told(runs, second) == first
    assert runs.status("child")["startedFrom"] == status["startedFrom"]
