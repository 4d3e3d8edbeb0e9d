"""What kubelet, scheduler and garbage collector would do, done by the test: nodes are not part of this suite."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.integration.cluster.admin import AdminClient, ApiError
from tests.integration.cluster.polling import wait_for

API, TRAINER, ENVIRONMENT = "api", "trainer", "environment"
NODE = "node-1"
NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class End:
    """How a container ended."""

    code: int = 0
    message: str = ""
    reason: str = ""

    @property
    def state(self) -> dict[str, Any]:
        reason = self.reason or ("Completed" if self.code == 0 else "Error")
        terminated = {"exitCode": self.code, "reason": reason, "message": self.message}
        return {"terminated": {**terminated, "startedAt": NOW, "finishedAt": NOW}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}, "ready": False}


def running(*, ready: bool) -> dict[str, Any]:
    return {"state": {"running": {"startedAt": NOW}}, "ready": ready}


def result(outcome: str, *, steps: int, total: int, attempt: int = 1, **more: Any) -> str:
    """A trainer's termination message (contract: Result)."""
    paths = {"statePath": f"tinker://m/weights/{steps:06d}"} if steps else {}
    if outcome == "succeeded":
        paths["samplerPath"] = f"tinker://m/sampler_weights/{steps:06d}"
    head = {"schema": 1, "outcome": outcome, "attempt": attempt, "stepsTrained": steps, "totalSteps": total}
    return json.dumps({**head, **paths, **more})


def child_paths(namespace: str) -> list[str]:
    """Where the kinds of a run's children are."""
    core, networking = f"/api/v1/namespaces/{namespace}", f"/apis/networking.k8s.io/v1/namespaces/{namespace}"
    return [*(f"{core}/{plural}" for plural in ("pods", "configmaps", "services")), f"{networking}/networkpolicies"]


class FakeKubelet:
    """Writes the status of one namespace's pods."""

    def __init__(self, admin: AdminClient, namespace: str) -> None:
        self._admin = admin
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def pods(self) -> list[dict[str, Any]]:
        return self._admin.items(self._pods)

    def pod(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._admin.find(f"{self._pods}/{name}")
        return found

    # --- scheduler and kubelet ----------------------------------------------------------------------------------
    def bind(self, name: str) -> None:
        """Of a pod that may start, or will at once: the operator lifts its gate."""
        wait_for(
            f"pod {name} has no gate",
            lambda: not self._admin.get(f"{self._pods}/{name}")["spec"].get("schedulingGates"),
        )
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        self._admin.post(f"{self._pods}/{name}/binding", body)

    def start(self, name: str, address: str = "127.255.0.1") -> None:
        """All containers run; the sidecar is ready. By default nothing listens at the address."""
        self.bind(name)
        states = {container: running(ready=container == API) for container in self._containers(name)}
        self.write(name, "Running", states, podIP=address)

    def work(self, name: str, address: str | None = None) -> None:
        """The trainer serves, from now on at that address if it is given, and the first group was accepted."""
        states = {container: running(ready=True) for container in self._containers(name)}
        self.write(name, "Running", states, **({"podIP": address} if address else {}))

    def end(self, name: str, phase: str, *, more: Mapping[str, Any] | None = None, **ends: End) -> None:
        """All containers have ended; those not named exited with 0. `more` of the status: reason, conditions…"""
        states = {c: {"state": ends.get(c, End()).state, "ready": False} for c in self._containers(name)}
        self.write(name, phase, states, **(more or {}))

    def _containers(self, name: str) -> list[str]:
        spec = self._admin.get(f"{self._pods}/{name}")["spec"]
        return [container["name"] for container in (*spec.get("initContainers", ()), *spec["containers"])]

    def write(self, name: str, phase: str, states: Mapping[str, dict[str, Any]], **status: Any) -> None:
        statuses = {c: _container_status(c, state) for c, state in states.items()}
        api = [s for c, s in statuses.items() if c == API]
        others = [s for c, s in statuses.items() if c != API]
        body = {"phase": phase, "initContainerStatuses": api, "containerStatuses": others, **status}
        self._admin.patch(f"{self._pods}/{name}/status", {"status": body})

    def remove(self, name: str) -> None:
        """The kubelet's last report on a terminating pod: its containers are gone."""
        _ignore_absence(self._admin.delete, f"{self._pods}/{name}", {"gracePeriodSeconds": 0})

    # --- garbage collector --------------------------------------------------------------------------------------
    def collect_garbage(self) -> None:
        """Delete children whose run is gone."""
        runs = self._admin.items(f"/apis/rl-operator.dev/v1alpha1/namespaces/{self._namespace}/rltrainingruns")
        alive = {run["metadata"]["uid"] for run in runs}
        for path in child_paths(self._namespace):
            for child in self._admin.items(path):
                owners = child["metadata"].get("ownerReferences", [])
                if owners and not any(owner["uid"] in alive for owner in owners):
                    self._delete_orphan(path, child)

    def _delete_orphan(self, path: str, child: dict[str, Any]) -> None:
        _ignore_absence(self._admin.delete, f"{path}/{child['metadata']['name']}")
        if path == self._pods and child["spec"].get("nodeName"):
            self.remove(child["metadata"]["name"])


def _ignore_absence(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except ApiError as error:
        if error.code != 404:
            raise


def _container_status(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "image": "i", "imageID": "i", "restartCount": 0, "started": True, **state}
