"""Runs of one namespace, as a user with kubectl sees them."""

import contextlib
from typing import Any

from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import ADMIN_TOKEN, Call, ControlPlane
from tests.integration.cluster.kubelet import End, FakeKubelet, child_paths, result
from tests.integration.cluster.polling import wait_for

from rl_operator.api.names import MANAGED_BY_LABEL
from rl_operator.documents.parse import load_documents
from rl_operator.documents.shipped import bundled_runtime_text

TOTAL_STEPS = 4

ALL_RUNS = "/apis/rl-operator.dev/v1alpha1/rltrainingruns"
ALL_PODS = "/api/v1/pods"


def install_runtime(admin: AdminClient, like: str, name: str | None = None, **spec: Any) -> None:
    """A shipped runtime, perhaps under another name and with some of its spec replaced."""
    document = load_documents(bundled_runtime_text(like))[0]
    document["metadata"]["name"] = name or like
    document["spec"] |= spec
    admin.post(RUNTIMES, dict(document))


def sweep(admin: AdminClient) -> None:
    """Leave no run and no pod, whatever finalizers it has."""
    for run in admin.items(ALL_RUNS):
        admin.delete(f"{RUNS.format(namespace=run['metadata']['namespace'])}/{run['metadata']['name']}")
    for pod in admin.items(ALL_PODS):
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        if pod["metadata"].get("finalizers"):
            admin.patch(path, {"metadata": {"finalizers": None}})
        if admin.find(path):
            admin.delete(path, {"gracePeriodSeconds": 0})


class RunsNamespace:
    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self.admin = plane.admin
        self.kubelet = FakeKubelet(plane.admin, namespace)
        self._plane = plane
        self._path = RUNS.format(namespace=namespace)

    # --- what a user does ---------------------------------------------------------------------------------------
    def apply(self, name: str = "sorting", **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": name},
            "spec": {
                "environment": "sort_digits",
                "runtime": "tiny",
                "config": {"total_steps": TOTAL_STEPS},
                **spec,
            },
        }
        return self.create(body)

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self.admin.post(self._path, body)
        return created

    def edit(self, name: str = "sorting", **spec: Any) -> None:
        self.admin.patch(f"{self._path}/{name}", {"spec": spec})

    def delete(self, name: str = "sorting") -> None:
        self.admin.delete(f"{self._path}/{name}")

    def find(self, name: str = "sorting") -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.admin.find(f"{self._path}/{name}")
        return found

    def status(self, name: str = "sorting") -> dict[str, Any]:
        run = self.find(name)
        return run["status"] if run else {}

    def newest_trainer(self) -> tuple[dict[str, Any], set[str]]:
        """How it identifies itself, and what the trainers of all pods here ask for; from any thread."""
        with contextlib.closing(AdminClient("127.0.0.1", self._plane.port, ADMIN_TOKEN)) as admin:
            run = admin.find(f"{self._path}/sorting") or {"metadata": {}}
            pods = admin.items(f"/api/v1/namespaces/{self.namespace}/pods")
        found = [each for pod in pods for part in pod["spec"]["containers"] for each in part.get("env", ())]
        tokens = {each["value"] for each in found if each["name"] == "RL_OPS_TOKEN"}
        return {"runUid": run["metadata"].get("uid"), "attempt": run.get("status", {}).get("attempt")}, tokens

    def condition(self, type_: str, name: str = "sorting") -> dict[str, Any] | None:
        return next((c for c in self.status(name).get("conditions", []) if c["type"] == type_), None)

    def writes(self) -> list[Call]:
        """The operator's writes here, Events left out."""
        return [write for write in self._plane.operator_writes(self.namespace) if write.resource != "events"]

    def calls(self) -> int:
        """How many calls about single objects here the operator has made."""
        return len(self.each_call())

    def each_call(self) -> list[Call]:
        """Those calls, in order."""
        return self._plane.operator_calls(self.namespace)

    def empty(self) -> bool:
        """Whether no child is left."""
        paths = child_paths(self.namespace)
        children = [item for path in paths for item in self.admin.items(path, labelSelector=MANAGED_BY_LABEL)]
        return not children

    def created_pods(self) -> list[str]:
        """Their names, in order, according to the API server's audit log."""
        return [w.name for w in self.writes() if (w.verb, w.resource, w.code) == ("create", "pods", 201)]

    def one_pod_per_attempt(self, attempts: int = 1) -> None:
        created = self.created_pods()
        assert len(created) == len(set(created)) == attempts, created

    # --- lives that are played ------------------------------------------------------------------------------------
    def train(self, name: str = "sorting", **spec: Any) -> str:
        """Apply a run, and play its life until it trains; the name of its pod."""
        self.apply(name, **spec)
        return self.until_training(name=name)

    def until_training(self, attempt: int = 1, name: str = "sorting") -> str:
        """Play the life of the attempt's pod until it trains; its name."""
        pod = self.until_pod(attempt, name)
        self.kubelet.start(pod)
        self.kubelet.work(pod)
        self.until_phase("Running", name)
        return pod

    def finish(self, pod: str, name: str = "sorting", attempt: int = 1) -> dict[str, Any]:
        """Play the success of a pod that works, and wait for its release; the run's status."""
        message = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, attempt=attempt)
        self.kubelet.end(pod, "Succeeded", trainer=End(0, message))
        status = self.until_phase("Succeeded", name)
        self.until_released(pod)
        return status

    def succeed(self, pod: str, attempt: int = 1) -> None:
        """Play a pod's life up to a recorded success, and wait for its release."""
        self.kubelet.start(pod)
        self.kubelet.work(pod)
        self.until_phase("Running")
        self.finish(pod, attempt=attempt)

    # --- waiting ------------------------------------------------------------------------------------------------
    def until_phase(self, phase: str, name: str = "sorting", *, seconds: float = 60.0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            self._last = self.status(name)
            return self._last if self._last.get("phase") == phase else None

        try:
            return wait_for(f"run {name} is {phase}", look, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {self._last}") from None

    def until_reason(self, type_: str, reason: str, word: str = "", name: str = "sorting") -> dict[str, Any]:
        """The condition, once it gives that reason with that word in its message."""

        def look() -> dict[str, Any] | None:
            self._last = self.status(name)
            found = self.condition(type_, name)
            return found if found and found["reason"] == reason and word in found["message"] else None

        try:
            return wait_for(f"run {name} is {type_} because of {reason} ({word!r})", look)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {self._last}") from None

    def until_pod(self, attempt: int = 1, name: str = "sorting") -> str:
        """The name of the attempt's pod, once it is there."""

        def look() -> str | None:
            status = self.status(name)
            pod = status.get("podName", "")
            created = status.get("attempt") == attempt and self.kubelet.pod(pod)
            return str(pod) if created else None

        return wait_for(f"the pod of attempt {attempt} of run {name}", look)

    def until_released(self, pod: str) -> None:
        """Until the operator no longer holds the pod."""

        def look() -> bool:
            found = self.kubelet.pod(pod)
            return found is None or not found["metadata"].get("finalizers")

        wait_for(f"pod {pod} is released", look)
