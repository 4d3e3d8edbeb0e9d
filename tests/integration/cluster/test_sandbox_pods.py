"""A run with sandbox pods on a real API server; the test is their kubelet."""

from collections import Counter

from tests.integration.cluster.kubelet import End, running
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace

from rl_operator.api.names import SANDBOX_CONTAINER


class SandboxPlayer:
    """Runs and ends the sandboxes of a namespace's only run."""

    def __init__(self, runs: RunsNamespace) -> None:
        self.runs = runs

    def names(self) -> set[str]:
        """Of those that are not terminating, after the run's name and uid."""
        pods = (pod["metadata"] for pod in self.runs.kubelet.pods() if "-sandbox-" in pod["metadata"]["name"])
        return {each["name"].split("-", 2)[2] for each in pods if "deletionTimestamp" not in each}

    def until(self, *names: str) -> None:
        wait_for(f"the sandboxes are {names}", lambda: self.names() == set(names))

    def start(self, name: str) -> None:
        self.runs.kubelet.bind(self._whole(name))
        self.runs.kubelet.write(self._whole(name), "Running", {SANDBOX_CONTAINER: running(ready=True)})

    def end(self, name: str) -> None:
        """As after a rollout."""
        states = {SANDBOX_CONTAINER: {"state": End().state, "ready": False}}
        self.runs.kubelet.write(self._whole(name), "Succeeded", states)

    def _whole(self, name: str) -> str:
        prefix = self.runs.status()["podName"].rpartition("-")[0]
        return f"{prefix}-{name}"


def test_a_replaced_sandbox_costs_two_calls(runs: RunsNamespace) -> None:
    """Besides the status, which is written no more often than other progress."""
    sandboxes = SandboxPlayer(runs)
    runs.apply(sandbox={"size": 2})
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    sandboxes.until("1-sandbox-0-0", "1-sandbox-1-0")
    for name in sandboxes.names():
        sandboxes.start(name)
    wait_for("both are counted", lambda: runs.status()["sandboxes"]["ready"] == 2)

    before = runs.calls()
    for number in range(5):
        sandboxes.end(f"1-sandbox-0-{number}")
        sandboxes.until(f"1-sandbox-0-{number + 1}", "1-sandbox-1-0")
        sandboxes.start(f"1-sandbox-0-{number + 1}")
    wait_for("all are counted", lambda: runs.status()["sandboxes"]["replaced"] == 5)
    made = Counter((call.verb, call.resource) for call in runs.each_call()[before:])
    del made["patch", "rltrainingruns/status"]
    assert made == {("create", "pods"): 5, ("delete", "pods"): 5}
