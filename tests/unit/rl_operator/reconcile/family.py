"""Runs of one namespace over the local target's objects: the test decides how they end, and plays the kubelet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import failed_result, ready, terminated
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_operator.api.catalog import Catalog
from rl_operator.api.kubernetes_objects import ConfigMapObject, KubernetesObject, Manifest, PodObject
from rl_operator.api.names import API_VERSION, RUN_KIND
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.local_run_client import LocalRunClient, pods_of
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.local.state.pod_logs import Event, read_events
from rl_operator.local.state.state_store import StateStore
from rl_operator.reconcile import ReconcilePace, reconcile
from rl_operator.status.observed.observation import format_time

PACE = ReconcilePace(backoff_seconds=10, progress_seconds=60)
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


class CountingClient(LocalRunClient):
    """Counts live reads, which are calls on a cluster; kills the operator at a write on request."""

    live_reads = 0
    dies_at_child = False

    def is_verified(self, run: TrainingRun) -> bool:  # noqa: ARG002 -- they are created here, and nobody exchanges them
        return True

    async def read_run(self, key: tuple[str, str]) -> TrainingRun | None:
        self.live_reads += 1
        return await super().read_run(key)

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        self.live_reads += 1
        return await super().read_config_map(namespace, name)

    async def create_child(self, manifest: KubernetesObject) -> None:
        if self.dies_at_child:
            raise KilledError
        await super().create_child(manifest)


async def nothing_found(_files: Mapping[str, str], _entry: str | None) -> Catalog:
    return Catalog()


@dataclass
class Family:
    """Runs of one namespace and the operator that looks after them."""

    store: StateStore
    now: datetime = NOW
    world_class: type[CountingClient] = CountingClient
    client: CountingClient = field(init=False)

    def __post_init__(self) -> None:
        own = OwnEnvironments(self.store.get, nothing_found)
        self.client = self.world_class(self.store, own, ToldMetrics(), Interpreters(self.store.layout, {}))

    def apply(self, name: str, **spec: Any) -> None:
        metadata = {"name": name, "namespace": "default"}
        spec = {"environment": "sort_digits", "runtime": "tiny", **spec}
        self.store.create({"apiVersion": API_VERSION, "kind": RUN_KIND, "metadata": metadata, "spec": spec})

    def edit(self, name: str, **spec: Any) -> None:
        self.store.update(RUN_KIND, "default", name, lambda run: run["spec"].update(spec))

    def run(self, name: str) -> TrainingRun:
        found = self.client.run(("default", name))
        assert found is not None
        return found

    def status(self, name: str) -> RunStatus:
        return self.run(name).status

    def pods(self, name: str) -> tuple[PodObject, ...]:
        return pods_of(self.store, ("default", name))

    def children(self, name: str) -> tuple[Manifest, ...]:
        owned = (each for kind in ("Pod", "ConfigMap") for each in self.store.list_all(kind, "default"))
        uid = self.run(name).metadata.uid
        return tuple(each for each in owned if each["metadata"]["ownerReferences"][0]["uid"] == uid)

    def events(self, name: str) -> list[Event]:
        return list(read_events(self.store.layout.events("default", name)))

    def trainer(self, name: str) -> dict[str, str]:
        """The newest pod's start variables for its trainer."""
        containers = self.pods(name)[-1]["spec"]["containers"]
        variables = next(container for container in containers if container["name"] == "trainer")["env"]
        return {v["name"]: v["value"] for v in variables if v["name"].startswith(("RL_START_FROM", "RL_PARENT_"))}

    async def start(self, name: str, **spec: Any) -> None:
        self.apply(name, **spec)
        await self.settle(name)

    async def change(self, name: str, **spec: Any) -> None:
        self.edit(name, **spec)
        await self.settle(name)

    async def fail(self, name: str, told: str = failed_result("internal", "bug")) -> None:
        self.play_failure(name, told)
        await self.settle(name)

    async def later(self, name: str, **time: float) -> None:
        self.now += timedelta(**time)
        await self.settle(name)

    async def settle(self, name: str) -> None:
        for _ in range(5):
            before = self.run(name).metadata.resource_version
            await reconcile(("default", name), self.client, lambda: self.now, PACE)
            if self.run(name).metadata.resource_version == before:
                return
        pytest.fail("the reconcile does not come to rest")

    def set_status(self, name: str, **status: Any) -> None:
        self.store.update(RUN_KIND, "default", name, lambda run: run["status"].update(status))

    async def parent(self, name: str = "parent", **status: Any) -> None:
        """A run that has started and then has this `status`."""
        await self.start(name)
        self.set_status(name, **status)

    def play_failure(self, name: str, told: str) -> None:
        """The newest pod's trainer fails, and leaves this result."""
        status = {
            "phase": "Failed",
            "initContainerStatuses": [{"name": "api", **ready()}],
            "containerStatuses": [
                {"name": "trainer", **terminated(1, told, at=format_time(self.now))},
                {"name": "environment", **terminated(0)},
            ],
        }
        pod = self.pods(name)[-1]["metadata"]["name"]
        self.store.update("Pod", "default", pod, lambda manifest: manifest.update(status=status))
