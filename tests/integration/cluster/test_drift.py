"""Others delete, edit or take over objects of a run: each row of the rule on a real API server."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient, ApiError
from tests.integration.cluster.control_plane import GUEST, GUEST_TOKEN, RIGHTS, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime
from tests.integration.cluster.trainer import trainer_status

from generate.drift import DRIFTS

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
FIGURES = {"phase": "training", "step": 2, "totalSteps": TOTAL_STEPS, "metrics": {"rolloutReward": 0.5}}


def path(runs: RunsNamespace, plural: str, name: str = "") -> str:
    group = "/apis/networking.k8s.io/v1" if plural == "networkpolicies" else "/api/v1"
    return f"{group}/namespaces/{runs.namespace}/{plural}/{name}".rstrip("/")


def run_path(runs: RunsNamespace, subresource: str = "") -> str:
    return f"{RUNS.format(namespace=runs.namespace)}/sorting{subresource}"


def train_apart(runs: RunsNamespace) -> tuple[str, str]:
    """A run with a second environment in a separate pod: the names of both pods."""
    pod = runs.train(environmentReplicas=2)
    apart = wait_for("the environment's pod", lambda: environments(runs))
    return pod, apart[0]


def environments(runs: RunsNamespace) -> list[str]:
    """Environment pods that are not terminating."""
    pods = (pod["metadata"] for pod in runs.kubelet.pods())
    return sorted(each["name"] for each in pods if "-env-" in each["name"] and "deletionTimestamp" not in each)


def succeed(runs: RunsNamespace, pod: str) -> dict[str, Any]:
    """The trainer of a working pod has trained all steps."""
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    return runs.until_phase("Succeeded")


def reasons(runs: RunsNamespace) -> list[str]:
    return [attempt["reason"] for attempt in runs.status()["attempts"]]


def draft(runs: RunsNamespace, **spec: Any) -> tuple[str, str]:
    """The names of the children of a run that has not started: their prefix, and its ConfigMap."""
    run = runs.apply(suspend=True, **spec)
    config_hash = runs.until_phase("Draft")["configHash"]
    return f"sorting-{run['metadata']['uid'][:5]}", f"sorting-{config_hash[:8]}"


def test_each_row_of_the_rule_has_its_test() -> None:
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert {deed.id for deed in DRIFTS} <= tests


# --- deleted ------------------------------------------------------------------------------------------------------
def test_config_deleted(runs: RunsNamespace) -> None:
    pod = runs.train()
    config_map = path(runs, "configmaps", runs.status()["configMapName"])
    before = runs.admin.get(config_map)
    runs.admin.delete(config_map)
    after = wait_for("it is there again", lambda: runs.admin.find(config_map))
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (after["data"], after["immutable"]) == (before["data"], True)
    assert succeed(runs, pod)["attempt"] == 1


@pytest.fixture
def own_runtime(runs: RunsNamespace) -> Iterator[str]:
    name = f"tiny-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name)
    yield name
    runs.admin.delete(f"{RUNTIMES}/{name}")


def test_config_lost(runs: RunsNamespace, own_runtime: str) -> None:
    pod = runs.train(runtime=own_runtime)
    config_map = path(runs, "configmaps", runs.status()["configMapName"])
    runtime = f"{RUNTIMES}/{own_runtime}"
    edited = runs.admin.patch(runtime, {"spec": {"podLabels": {"team": "b"}}})["metadata"]["generation"]
    # Until then it makes the same ConfigMap again, as it should.
    wait_for("the edit is seen", lambda: runs.admin.get(runtime)["status"].get("observedGeneration") == edited)
    runs.admin.delete(config_map)
    ready = runs.until_reason("Ready", "Training", "was deleted")
    assert config_map.rpartition("/")[2] in ready["message"]
    stays("the pod goes on", lambda: "deletionTimestamp" not in runs.kubelet.pod(pod)["metadata"])
    runs.kubelet.end(pod, "Failed", trainer=End(1, result("running", steps=2, total=TOTAL_STEPS)))
    status = runs.until_phase("Failed")
    assert (status["failure"]["reason"], status["checkpoint"]["step"]) == ("ConfigLost", 2)
    assert runs.created_pods() == [pod]


def test_network_deleted(runs: RunsNamespace) -> None:
    pod, _ = train_apart(runs)
    prefix = pod.rpartition("-")[0]
    children = [
        path(runs, "services", prefix),
        *(path(runs, "networkpolicies", f"{prefix}-{side}") for side in ("trainer", "environment", "ops")),
    ]
    for child in children:
        before = runs.admin.get(child)["metadata"]["uid"]
        runs.admin.delete(child)
        after = wait_for(f"{child} is there again", lambda child=child: runs.admin.find(child))
        assert after["metadata"]["uid"] != before
    assert runs.status()["phase"] == "Running"


def test_pod_deleted(runs: RunsNamespace) -> None:
    first = runs.train()
    runs.admin.delete(path(runs, "pods", first))
    runs.kubelet.end(first, "Succeeded", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    assert reasons(runs) == ["PodDeleted", "Succeeded"]
    assert "failedAttempts" not in runs.status()


def test_environment_deleted(runs: RunsNamespace) -> None:
    _, apart = train_apart(runs)
    runs.admin.delete(path(runs, "pods", apart), {"gracePeriodSeconds": 0})
    wait_for("another one is there", lambda: environments(runs))
    assert runs.status()["environments"]["failures"] == 0
    assert runs.status()["phase"] == "Running"


def succeed_with_series(runs: RunsNamespace, address: str) -> str:
    """The path of the ConfigMap for the history of a run that succeeds."""
    pod = runs.until_pod()
    with trainer_status(
        runs, address, FIGURES, [{"step": step, "rolloutReward": 0.1 * step} for step in (1, 2)]
    ) as asked:
        runs.kubelet.start(pod, address)
        runs.kubelet.work(pod)
        # The status is polled again only after the history was read.
        wait_for("its series is read", lambda: "/history" in asked and asked[-1] == "/status")
        succeed(runs, pod)
    runs.until_released(pod)
    return path(runs, "configmaps", runs.status()["historyName"])


def test_history_deleted(runs: RunsNamespace) -> None:
    runs.apply()
    series_map = succeed_with_series(runs, "127.255.0.21")
    assert runs.admin.get(series_map)["data"]
    runs.admin.delete(series_map)
    stays("it is not written again", lambda: runs.admin.find(series_map) is None)


def test_applied_again(runs: RunsNamespace) -> None:
    old = runs.train()
    runs.delete()
    runs.apply()
    new = runs.until_pod()
    assert new != old
    runs.kubelet.collect_garbage()
    runs.until_released(old)
    runs.succeed(new)
    assert reasons(runs) == ["Succeeded"]


# --- edited -------------------------------------------------------------------------------------------------------
def test_network_edited(runs: RunsNamespace) -> None:
    pod, _ = train_apart(runs)
    policy = path(runs, "networkpolicies", f"{pod.rpartition('-')[0]}-trainer")
    edited = runs.admin.patch(policy, {"spec": {"ingress": []}})
    stays("it stays as it is", lambda: runs.admin.get(policy)["spec"] == edited["spec"])
    assert runs.status()["phase"] == "Running"


def test_finalizer_removed(runs: RunsNamespace) -> None:
    first = runs.train()
    runs.admin.patch(path(runs, "pods", first), {"metadata": {"finalizers": None}})
    runs.kubelet.remove(first)
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    assert reasons(runs) == ["PodLost", "Succeeded"]
    assert "failedAttempts" not in runs.status()


@pytest.mark.parametrize("works", [True, False], ids=["running", "starting"])
def test_labels_removed(runs: RunsNamespace, works: bool) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    if works:
        runs.kubelet.work(pod)
        runs.until_phase("Running")
    before = runs.kubelet.pod(pod)["metadata"]["labels"]
    runs.admin.patch(path(runs, "pods", pod), {"metadata": {"labels": dict.fromkeys(before)}})

    def ours() -> bool:
        labels = runs.kubelet.pod(pod)["metadata"].get("labels", {})
        return all(labels.get(name) == value for name, value in before.items() if "rl-operator" in f"{name}{value}")

    wait_for("they are back", ours)
    runs.kubelet.work(pod)
    runs.until_phase("Running")
    succeed(runs, pod)
    assert reasons(runs) == ["Succeeded"]
    assert runs.created_pods() == [pod]


def test_owner_removed(runs: RunsNamespace) -> None:
    pod = runs.train()
    runs.admin.patch(path(runs, "pods", pod), {"metadata": {"ownerReferences": None}})
    runs.until_reason("Reconciling", "NameTaken", pod)
    stays("nothing runs beside it", lambda: runs.created_pods() == [pod])
    runs.kubelet.remove(pod)
    wait_for("the run goes on", lambda: len(runs.created_pods()) == 2)
    again = runs.until_pod(attempt=1)
    runs.succeed(again)
    assert reasons(runs) == ["Succeeded"]


@pytest.mark.parametrize("times", [1, 5])
def test_suspend_toggled(runs: RunsNamespace, times: int) -> None:
    first = runs.train()
    for _ in range(times):
        runs.edit(suspend=True)
        runs.edit(suspend=False)
    # Whether it was seen in between is a matter of chance; a pod that was asked to end ends.
    if wait_for("it is seen or not", lambda: runs.kubelet.pod(first))["metadata"].get("deletionTimestamp"):
        runs.kubelet.end(first, "Succeeded", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
        runs.succeed(runs.until_pod(attempt=2), attempt=2)
    else:
        stays("it goes on", lambda: runs.status()["phase"] in ("Running", "Stopping"))
        pod = runs.kubelet.pod(first)
        if "deletionTimestamp" in pod["metadata"]:
            runs.kubelet.end(first, "Succeeded", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
            runs.succeed(runs.until_pod(attempt=2), attempt=2)
        else:
            succeed(runs, first)
    assert reasons(runs)[-1] == "Succeeded"
    assert len(runs.created_pods()) == len(reasons(runs))


SET_BACK: dict[str, dict[str, Any]] = {
    "removed": {"attempt": None, "podName": None},
    "attempt set back": {"attempt": 1},
    "as if the first had never ended": {"attempt": 1, "podName": None, "attempts": None},
}


@pytest.mark.parametrize("edit", SET_BACK.values(), ids=SET_BACK)
def test_status_set_back(runs: RunsNamespace, edit: dict[str, Any]) -> None:
    first = runs.train()
    runs.kubelet.end(first, "Failed", trainer=End(1, result("running", steps=1, total=TOTAL_STEPS)))
    second = runs.until_training(attempt=2)
    runs.until_released(first)
    runs.kubelet.remove(first)
    runs.admin.patch(run_path(runs, "/status"), {"status": edit})
    wait_for("it is put right", lambda: (runs.status().get("attempt"), runs.status().get("podName")) == (2, second))
    stays("nothing runs beside it", lambda: runs.created_pods() == [first, second])
    succeed(runs, second)
    assert runs.status()["attempts"][-1] | {"started": "", "ended": ""} == {
        "attempt": 2, "pod": second, "reason": "Succeeded", "fromStep": 1, "steps": TOTAL_STEPS,
        "started": "", "ended": "",
    }  # fmt: skip


def test_start_removed(runs: RunsNamespace) -> None:
    runs.train()
    with pytest.raises(ApiError, match=r"status.startTime is set once") as refused:
        runs.admin.patch(run_path(runs, "/status"), {"status": {"startTime": None}})
    assert refused.value.code == 422


@pytest.mark.parametrize("edit", [{"phase": "Running"}, {"phase": None, "completionTime": None}], ids=["set", "unset"])
def test_end_removed(runs: RunsNamespace, edit: dict[str, Any]) -> None:
    succeed(runs, runs.train())
    with pytest.raises(ApiError, match="a run that is over stays over") as refused:
        runs.admin.patch(run_path(runs, "/status"), {"status": edit})
    assert refused.value.code == 422


@pytest.mark.parametrize(
    "edit", [{"message": "HACKED", "conditions": []}, {"message": "HACKED"}], ids=["both", "message"]
)
def test_end_edited(runs: RunsNamespace, edit: dict[str, Any]) -> None:
    succeed(runs, runs.train())
    before = runs.status()
    runs.admin.patch(run_path(runs, "/status"), {"status": edit})
    wait_for("it is put back", lambda: without_times(runs.status()) == without_times(before))


def without_times(status: dict[str, Any]) -> dict[str, Any]:
    conditions = [condition | {"lastTransitionTime": ""} for condition in status["conditions"]]
    return status | {"conditions": conditions}


def test_phase_finished(runs: RunsNamespace) -> None:
    pod = runs.train()
    runs.admin.patch(run_path(runs, "/status"), {"status": {"phase": "Succeeded"}})
    wait_for("the pod is asked to end", lambda: "deletionTimestamp" in runs.kubelet.pod(pod)["metadata"])
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
    runs.until_released(pod)
    assert runs.created_pods() == [pod]


# --- taken --------------------------------------------------------------------------------------------------------
def free(runs: RunsNamespace, kind: str, taken: str) -> None:
    """The unrelated object is named, left alone, and in the way until it is gone."""
    before = runs.admin.get(taken)
    runs.until_reason("Reconciling", "NameTaken", taken.rpartition("/")[2])
    assert kind in runs.status()["message"]
    stays("it is left alone", lambda: runs.admin.get(taken)["metadata"] == before["metadata"])
    assert not runs.created_pods()
    runs.admin.delete(taken, {"gracePeriodSeconds": 0})
    runs.succeed(runs.until_pod())


def test_config_taken(runs: RunsNamespace) -> None:
    """Even if it looks like one of ours: nothing is read from it."""
    _, name = draft(runs)
    stranger = {"config.yaml": "{}", "pod.json": '{"kind": "Pod"}', "environments.json": '{"pod": {}, "network": []}'}
    runs.admin.post(path(runs, "configmaps"), {"metadata": {"name": name}, "data": stranger})
    runs.edit(suspend=False)
    free(runs, "ConfigMap", path(runs, "configmaps", name))


@pytest.fixture
def forger(control_plane: ControlPlane, runs: RunsNamespace) -> Iterator[AdminClient]:
    """Someone who may write ConfigMaps and runs, and neither pods nor Secrets."""
    name, resources = f"researcher-{runs.namespace}", [("", "configmaps"), ("rl-operator.dev", "rltrainingruns")]
    roles, bindings = (RIGHTS[kind].format(namespace=runs.namespace) for kind in ("Role", "RoleBinding"))
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": ["*"]} for group, resource in resources]
    group = "rbac.authorization.k8s.io"
    runs.admin.post(roles, {"metadata": {"name": name}, "rules": rules})
    reference = {"apiGroup": group, "kind": "Role", "name": name}
    subjects = [{"apiGroup": group, "kind": "User", "name": GUEST}]
    runs.admin.post(bindings, {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    with contextlib.closing(AdminClient("127.0.0.1", control_plane.port, GUEST_TOKEN)) as client:
        wait_for("the rights are known", lambda: allowed(lambda: client.items(path(runs, "configmaps"))))
        yield client
    for made in (roles, bindings):
        runs.admin.delete(f"{made}/{name}")


def allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except ApiError as error:
        if error.code not in (403, 404, 409):
            raise
        return False
    return True


def forged(runs: RunsNamespace, name: str) -> dict[str, Any]:
    """A ConfigMap that only its content tells from the run's own."""
    run = runs.find() or {}
    owner = {"apiVersion": run["apiVersion"], "kind": run["kind"], "name": "sorting", "uid": run["metadata"]["uid"]}
    container = {"name": "trainer", "image": "evil.example/x", "securityContext": {"privileged": True}}
    mounted = [{"name": "host", "hostPath": {"path": "/"}}]
    spec = {"serviceAccountName": "ci-admin", "hostPID": True, "containers": [container], "volumes": mounted}
    pod = {"metadata": {"generateName": f"sorting-{run['metadata']['uid'][:5]}-", "labels": {}}, "spec": spec}
    return {
        "metadata": {
            "name": name,
            "labels": {"rl-operator.dev/run": "sorting", "app.kubernetes.io/managed-by": "rl-operator"},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "immutable": True,
        "data": {"config.yaml": "{}", "pod.json": json.dumps(pod), "environments.json": "{}"},
    }


def test_config_forged(runs: RunsNamespace, forger: AdminClient) -> None:
    """Before the start, while a pod trains, and between attempts: by someone who could not create that pod himself."""
    _, name = draft(runs)
    config_map = path(runs, "configmaps", name)
    forger.post(path(runs, "configmaps"), forged(runs, name))
    forger.patch(run_path(runs), {"spec": {"suspend": False}})
    starting = runs.until_reason("Reconciling", "TemplateChanged", name)
    assert "pod.json differs" in starting["message"]
    stays("nothing is started", lambda: not runs.created_pods())
    forger.delete(config_map)
    first = runs.until_training()

    def exchanged() -> bool:
        """The operator writes it again as soon as it sees that it is gone."""
        allowed(lambda: forger.delete(config_map))
        return allowed(lambda: forger.post(path(runs, "configmaps"), forged(runs, name)))

    wait_for("it is exchanged", exchanged)
    assert "Training continues." in runs.until_reason("Ready", "TemplateChanged", name)["message"]
    runs.kubelet.end(first, "Failed", trainer=End(1, result("running", steps=1, total=TOTAL_STEPS)))
    runs.until_reason("Reconciling", "TemplateChanged", name)
    stays("nothing is started", lambda: runs.created_pods() == [first])
    forger.delete(config_map)
    second = runs.until_pod(attempt=2)
    spec = runs.kubelet.pod(second)["spec"]
    assert spec["containers"][0]["image"] != "evil.example/x"
    assert not spec.get("hostPID")


def test_pod_taken(runs: RunsNamespace) -> None:
    prefix, _ = draft(runs)
    pod = {"metadata": {"name": f"{prefix}-1"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    runs.admin.post(path(runs, "pods"), pod)
    runs.edit(suspend=False)
    free(runs, "Pod", path(runs, "pods", f"{prefix}-1"))


def test_service_taken(runs: RunsNamespace) -> None:
    prefix, _ = draft(runs, environmentReplicas=2)
    service = {"metadata": {"name": prefix}, "spec": {"ports": [{"port": 1}], "clusterIP": "None"}}
    runs.admin.post(path(runs, "services"), service)
    runs.edit(suspend=False)
    free(runs, "Service", path(runs, "services", prefix))


def test_policy_taken(runs: RunsNamespace) -> None:
    prefix, _ = draft(runs, environmentReplicas=2)
    runs.admin.post(
        path(runs, "networkpolicies"), {"metadata": {"name": f"{prefix}-trainer"}, "spec": {"podSelector": {}}}
    )
    runs.edit(suspend=False)
    free(runs, "NetworkPolicy", path(runs, "networkpolicies", f"{prefix}-trainer"))


def test_history_taken(runs: RunsNamespace) -> None:
    prefix, _ = draft(runs)
    runs.admin.post(path(runs, "configmaps"), {"metadata": {"name": f"{prefix}-history"}, "data": {"mine": "x"}})
    runs.edit(suspend=False)
    assert succeed_with_series(runs, "127.255.0.22") == path(runs, "configmaps", f"{prefix}-history")
    assert runs.admin.get(path(runs, "configmaps", f"{prefix}-history"))["data"] == {"mine": "x"}
