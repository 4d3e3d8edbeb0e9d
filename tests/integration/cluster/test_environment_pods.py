"""Runs whose environments run in separate pods, on a real API server; the test is their kubelet."""

import pytest
from tests.integration.cluster.kubelet import End, child_paths, result
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace
from tests.integration.cluster.test_environments import GOOD
from tests.integration.cluster.trainer import trainer_status
from tests.integration.cluster.written_environments import OwnEnvironments

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
STOPPED = result("stopped", steps=1, total=TOTAL_STEPS)


class OwnRuns:
    """Runs of an RLEnvironment `counting`, and the pods that it runs in."""

    def __init__(self, runs: RunsNamespace) -> None:
        self.runs = runs
        self.kubelet = runs.kubelet
        self.own = OwnEnvironments(runs.admin, runs.namespace)

    def apply(self, **spec: object) -> str:
        """The name of the run's pod."""
        self.own.write("counting", env=GOOD)
        self.own.apply("counting")
        self.runs.apply(environment="own/counting", **spec)
        return self.runs.until_pod()

    def names(self) -> list[str]:
        """Names of the environment pods that are not terminating, after the run's name and uid."""
        pods = (pod["metadata"] for pod in self.kubelet.pods() if "-env-" in pod["metadata"]["name"])
        return sorted(metadata["name"].split("-", 2)[2] for metadata in pods if "deletionTimestamp" not in metadata)

    def until(self, *names: str) -> list[str]:
        """Their full names, once exactly these exist."""
        wait_for(f"the environment pods are {names}", lambda: self.names() == sorted(names) and self.names())
        prefix = self.runs.status()["podName"].rpartition("-")[0]
        return [f"{prefix}-{name}" for name in names]

    def start(self, address: str = "127.255.0.1") -> tuple[str, str]:
        """A training run: the names of its pod and of its environment's."""
        pod = self.apply()
        self.kubelet.start(pod, address)
        [environment] = self.until("1-env-0-0")
        self.kubelet.work(pod)
        self.kubelet.start(environment, "127.255.0.9")
        self.kubelet.work(environment)
        self.runs.until_phase("Running")
        return pod, environment

    def fail(self, name: str, words: str, code: int = 1) -> None:
        if not (self.kubelet.pod(name) or {})["spec"].get("nodeName"):
            self.kubelet.bind(name)
        self.kubelet.end(name, "Failed", environment=End(code, words))

    def network(self) -> list[str]:
        """Paths of the Services and NetworkPolicies of the namespace."""
        _, _, services, policies = child_paths(self.runs.namespace)
        found = ((path, self.runs.admin.items(path)) for path in (services, policies))
        return sorted(f"{path}/{each['metadata']['name']}" for path, items in found for each in items)


@pytest.fixture
def own_runs(runs: RunsNamespace) -> OwnRuns:
    """In a namespace that only admits restricted pods."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}", {"metadata": {"labels": restricted}})
    return OwnRuns(runs)


def test_an_own_environment_from_apply_to_weights(own_runs: OwnRuns) -> None:
    with trainer_status(
        own_runs.runs, "127.255.0.3", {"phase": "saving", "step": TOTAL_STEPS, "totalSteps": TOTAL_STEPS}
    ):
        pod, environment = own_runs.start("127.255.0.3")
        wait_for("all steps are trained", lambda: "All steps are trained" in own_runs.runs.status()["message"])
    assert own_runs.runs.status()["environments"] == {"desired": 1, "ready": 1, "failures": 0}
    config_maps = own_runs.runs.admin.items(f"/api/v1/namespaces/{own_runs.runs.namespace}/configmaps")
    [source] = [each for each in config_maps if "-source-" in each["metadata"]["name"]]
    assert (source["data"], source["immutable"]) == ({"env.py": GOOD}, True)

    own_runs.kubelet.end(environment, "Succeeded")
    stays("no other takes its place", lambda: own_runs.names() == ["1-env-0-0"])
    own_runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    own_runs.runs.until_phase("Succeeded")
    own_runs.runs.until_released(pod)
    writes = own_runs.runs.writes()
    assert {write.code // 100 for write in writes} == {2}, writes
    children = [(w.verb, w.resource) for w in writes if not w.resource.endswith("/status")]
    assert sorted(children) == [
        *[("create", "configmaps")] * 2,
        *[("create", "networkpolicies")] * 3,
        *[("create", "pods")] * 2,
        ("create", "services"),
        ("patch", "pods"),
        ("patch", "rltrainingruns"),  # the mark that it was started
    ]


def test_a_dead_environment_is_replaced_and_training_continues(own_runs: OwnRuns) -> None:
    pod, environment = own_runs.start()
    own_runs.fail(environment, "error: ZeroDivisionError in score")
    failed, replacement = own_runs.until("1-env-0-0", "1-env-0-1")
    assert failed == environment, "it stays for its log"
    wait_for("its failure is counted", lambda: own_runs.runs.status()["environments"]["failures"] == 1)
    own_runs.kubelet.start(replacement)
    own_runs.kubelet.work(replacement)
    wait_for("the replacement works", lambda: own_runs.runs.status()["environments"]["ready"] == 1)
    assert own_runs.runs.status()["phase"] == "Running"
    own_runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    own_runs.runs.until_phase("Succeeded")
    wait_for("none runs any more", lambda: own_runs.names() == ["1-env-0-0"])


def test_a_training_run_costs_no_calls(runs: RunsNamespace) -> None:
    own = OwnRuns(runs)
    with trainer_status(runs, "127.255.0.4", {"phase": "training", "step": 2, "totalSteps": TOTAL_STEPS}):
        runs.apply(environmentReplicas=3)
        pod = runs.until_pod()
        runs.kubelet.start(pod, "127.255.0.4")
        apart = own.until("1-env-1-0", "1-env-2-0")
        runs.kubelet.work(pod)
        for name in apart:
            runs.kubelet.start(name)
            runs.kubelet.work(name)
        wait_for("all of it is said", lambda: runs.status().get("environments", {}).get("ready") == 2)
        wait_for("its progress is told", lambda: "step 2" in runs.status()["message"])
        before = runs.calls()
        stays("nothing is read and nothing is written", lambda: runs.calls() == before, seconds=5)


def test_the_network_is_restored(own_runs: OwnRuns) -> None:
    own_runs.start()
    before = own_runs.network()
    assert len(before) == 4
    for path in before:
        own_runs.runs.admin.delete(path)
    wait_for("all of it is there again", lambda: own_runs.network() == before)


def test_the_operator_is_killed_between_two_environments(own_runs: OwnRuns, operator: OperatorProcess) -> None:
    _, environment = own_runs.start()
    operator.kill()
    own_runs.fail(environment, "error: while nobody looked")
    operator.start()
    own_runs.until("1-env-0-0", "1-env-0-1")
    own_runs.runs.one_pod_per_attempt(3)


def test_nothing_is_left_of_a_deleted_run(own_runs: OwnRuns) -> None:
    own_runs.start()
    own_runs.runs.delete()
    own_runs.kubelet.collect_garbage()
    wait_for("all children are gone", own_runs.runs.empty)
