"""Backups and new installations on a real API server: a started run never runs again without a request."""

from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import OPERATOR, OPERATOR_NAMESPACE, RBAC_GROUP, ControlPlane
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import RunsNamespace

MARK = "rl-operator.dev/started-as"
ELSEWHERE = "rl-operator-moved"
SERVERS_OWN = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")


ANNOTATION_BYTES = 256 * 1024
"""All of an object's annotations together, keys included, are at most this long."""


class Backup:
    """The output of `kubectl get -o yaml` for a run."""

    def __init__(self, runs: RunsNamespace, name: str = "sorting") -> None:
        found = runs.find(name)
        self._runs = runs
        self.uid = found["metadata"]["uid"]
        metadata = {field: value for field, value in found["metadata"].items() if field not in SERVERS_OWN}
        self.status = found["status"]
        self.document = {**found, "metadata": metadata}

    def restore(self, *, with_status: bool) -> dict[str, Any]:
        """Delete the run, and create it from the backup; a backup tool writes the status in a second call."""
        self._runs.delete()
        for pod in self._runs.kubelet.pods():
            wait_for("the pod is let go", lambda pod=pod: not self.of_pod(pod["metadata"]["name"]).get("finalizers"))
        self._runs.kubelet.collect_garbage()
        wait_for("nothing of it is left", self._runs.empty)
        created = self._runs.create(self.document)
        if with_status:
            path = f"{RUNS.format(namespace=self._runs.namespace)}/sorting/status"
            self._runs.admin.patch(path, {"status": self.status})
        return created

    def of_pod(self, name: str) -> dict[str, Any]:
        """Its metadata; empty when it is gone."""
        found = self._runs.kubelet.pod(name)
        return found["metadata"] if found else {}


def test_one_write_before_the_pod_and_the_mark_before_the_next(runs: RunsNamespace) -> None:
    run = runs.apply()
    runs.kubelet.start(runs.until_pod())
    wait_for("its containers are told", lambda: runs.status().get("containers"))
    found = runs.find()
    assert found["metadata"]["annotations"][MARK] == f"sorting.{run['metadata']['uid']}"
    first, status = ("update", "rltrainingruns/status"), ("patch", "rltrainingruns/status")
    order = [(w.verb, w.resource) for w in runs.writes()]
    created = [("create", kind) for kind in ("configmaps", "networkpolicies", "pods")]
    assert order[:6] == [first, *created, ("patch", "rltrainingruns"), status]


def test_a_run_whose_annotations_are_full_trains_without_its_mark(runs: RunsNamespace) -> None:
    """The API server refuses one more: that keeps neither its status from being written nor its end from being told."""
    full = {"example.com/notes": "x" * (ANNOTATION_BYTES - len("example.com/notes"))}
    draft = runs.apply(suspend=True)
    runs.admin.patch(f"{RUNS.format(namespace=runs.namespace)}/sorting", {"metadata": {"annotations": full}})
    runs.edit(suspend=False)
    runs.succeed(runs.until_pod())
    found = runs.find()
    assert (found["metadata"]["uid"], found["metadata"]["annotations"]) == (draft["metadata"]["uid"], full)


@pytest.mark.parametrize("with_status", [True, False], ids=["with status", "without status"])
def test_an_unfinished_restored_run_rests_until_it_is_requested(runs: RunsNamespace, with_status: bool) -> None:
    runs.train()
    again = Backup(runs).restore(with_status=with_status)
    condition = runs.until_reason("Suspended", "Restored")
    assert "rlctl resume sorting" in condition["message"]
    assert runs.status()["phase"] == "Stopped"
    stays("nothing starts", lambda: not runs.kubelet.pods())

    runs.admin.patch(f"{RUNS.format(namespace=runs.namespace)}/sorting", {"metadata": {"annotations": {MARK: None}}})
    pod = runs.until_pod()
    assert pod == f"sorting-{again['metadata']['uid'][:5]}-1"
    runs.succeed(pod)


def test_pods_that_a_backup_tool_restores_are_deleted_before_the_run_and_named_after_it(runs: RunsNamespace) -> None:
    """Velero restores pods before runs; without owners, with finalizers."""
    pod = runs.train()
    backup, found = Backup(runs), runs.kubelet.pod(pod)
    copied = {"labels": found["metadata"]["labels"], "finalizers": found["metadata"]["finalizers"]}
    runs.delete()
    wait_for("the pod is let go", lambda: not backup.of_pod(pod).get("finalizers"))
    runs.kubelet.collect_garbage()
    wait_for("nothing of it is left", runs.empty)
    metadata = {"name": pod, "namespace": runs.namespace, **copied}
    spec = {field: value for field, value in found["spec"].items() if field != "nodeName"}
    restored = {"metadata": metadata, "spec": spec}
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/pods", restored)
    wait_for("a pod of no run is deleted", lambda: not backup.of_pod(pod))
    runs.create(backup.document)
    runs.until_reason("Suspended", "Restored")
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/pods", restored)
    runs.kubelet.start(pod)
    runs.until_reason("Suspended", "Restored", f"Pod {pod} came back with it and works unwatched: delete it.")
    wait_for("it can be deleted", lambda: not backup.of_pod(pod).get("finalizers"))
    assert len(runs.kubelet.pods()) == 1


def test_a_new_installation_continues_with_existing_objects(
    runs: RunsNamespace, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    """Finished runs do not change, and a running one is completed."""
    runs.apply("done")
    pod = runs.until_pod(name="done")
    runs.kubelet.start(pod)
    runs.finish(pod, "done")
    pod = runs.train()
    operator.kill()
    before, done = len(runs.writes()), runs.find("done")
    allow_elsewhere(control_plane)
    moved = OperatorProcess(control_plane.kubeconfig(), *FAST, "--operator-namespace", ELSEWHERE)
    try:
        moved.start()
        stays("the finished run is left alone", lambda: {write.name for write in runs.writes()[before:]} <= {"sorting"})
        runs.finish(pod)
        assert runs.find("done") == done
        assert len(runs.kubelet.pods()) == 2
    finally:
        moved.close()


def allow_elsewhere(plane: ControlPlane) -> None:
    """The operator's rights in its own namespace by the manifest, in another one."""
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": ELSEWHERE}})
    roles = f"/apis/{RBAC_GROUP}/v1/namespaces/{{}}/roles"
    role = plane.admin.get(f"{roles.format(OPERATOR_NAMESPACE)}/rl-operator")
    plane.admin.post(roles.format(ELSEWHERE), {"metadata": {"name": "rl-operator"}, "rules": role["rules"]})
    binding = {
        "metadata": {"name": "rl-operator"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "rl-operator"},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": OPERATOR}],
    }
    plane.admin.post(f"/apis/{RBAC_GROUP}/v1/namespaces/{ELSEWHERE}/rolebindings", binding)
