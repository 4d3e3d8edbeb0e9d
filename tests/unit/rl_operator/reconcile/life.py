"""One run with its operator and its kubelet, over the local target's objects. The operator may die at any write."""

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from tests.unit.rl_operator.status.builders import failed_result, ready, result, terminated
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_operator.api.catalog import Catalog
from rl_operator.api.kubernetes_objects import KubernetesObject, PodObject
from rl_operator.api.names import (
    API_VERSION,
    COMPONENT_LABEL,
    ENVIRONMENT_COMPONENT,
    ENVIRONMENT_KIND,
    RUN_KIND,
    SANDBOX_COMPONENT,
    TRAINING_COMPONENT,
)
from rl_operator.api.status_fields import Condition, RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.local_run_client import LocalRunClient, pods_of
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError
from rl_operator.reconcile import ReconcilePace, reconcile
from rl_operator.reconcile.run_client import Key
from rl_operator.status.attempt.clock_gaps import NO_GAPS, ClockGaps
from rl_operator.status.observed.history import Point
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation, format_time

RECONCILES = pytest.mark.nightly("operator/src/rl_operator/reconcile", "operator/src/rl_operator/status")
BEFORE_OR_AFTER = pytest.mark.parametrize(
    "before", [pytest.param(True, id="before", marks=RECONCILES), pytest.param(False, id="after")]
)
"""Whether a kill comes just before a write or just after it: before one is nearly after the last one."""

Written = TypeVar("Written")

KEY = ("default", "sorting")
PACE = ReconcilePace(backoff_seconds=10, progress_seconds=60)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


class MortalClient(LocalRunClient):
    """Counts writes, and dies before or after the `dies_at`-th of them."""

    writes = 0
    dies_at: int | None = None
    dies_before = True
    told: tuple[str, ...] = ()
    """The reasons of all Events."""

    warned: tuple[str, ...] = ()
    """Those of Warnings."""

    run_is_gone = False
    """Its watch has a gap, and does not show it."""

    async def read_run(self, key: Key) -> TrainingRun | None:
        return None if self.run_is_gone else self.run(key)

    def record_event(self, run: TrainingRun, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.told += (reason,)
        self.warned += (reason,) if kind == "Warning" else ()
        super().record_event(run, kind, reason, message)

    async def _dying(self, write: Coroutine[object, object, Written]) -> Written:
        """The write, or death before or after it."""
        self.writes += 1
        doomed = self.writes == self.dies_at
        if doomed and self.dies_before:
            write.close()
            raise KilledError
        written = await write
        if doomed:
            raise KilledError
        return written

    async def create_child(self, manifest: KubernetesObject) -> None:
        await self._dying(super().create_child(manifest))

    async def delete_pod(self, pod: PodObservation) -> None:
        await self._dying(super().delete_pod(pod))

    async def save_history(self, run: TrainingRun, pod: PodObservation) -> None:
        await self._dying(super().save_history(run, pod))

    async def remove_finalizer(self, pod: PodObservation) -> None:
        await self._dying(super().remove_finalizer(pod))

    async def mark_started(self, run: TrainingRun) -> TrainingRun:
        return await self._dying(super().mark_started(run))

    async def delete_run(self, run: TrainingRun) -> None:
        await self._dying(super().delete_run(run))

    async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
        return await self._dying(super().write_status(run, status))


@dataclass
class Life:
    """One run, its operator and its kubelet."""

    store: StateStore
    client: MortalClient
    attempt_metrics: dict[str, ObservedTrainer]
    """What trainers answer, by pod."""

    series: dict[str, tuple[Point, ...]]
    """Of attempts, as far as they are at hand, by pod."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    gaps: Callable[[], ClockGaps] = lambda: NO_GAPS

    @property
    def run(self) -> TrainingRun:
        run = self.client.run(KEY)
        assert run is not None
        return run

    @property
    def status(self) -> RunStatus:
        return self.run.status

    @property
    def ends(self) -> list[str | None]:
        """The reasons of the attempts' ends."""
        return [attempt.reason for attempt in self.status.attempts]

    @property
    def waits_for(self) -> Condition:
        found = self.status.condition("Reconciling")
        assert found is not None
        return found

    def apply(self, **spec: Any) -> None:
        self.store.create(
            {
                "apiVersion": API_VERSION,
                "kind": RUN_KIND,
                "metadata": {"name": KEY[1], "namespace": KEY[0]},
                "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
            }
        )

    def apply_own(self, source: str = "class Digits: ...", **spec: Any) -> None:
        """A run of an RLEnvironment of its own."""
        self.write_source(source)
        self.store.create(
            {
                "apiVersion": API_VERSION,
                "kind": ENVIRONMENT_KIND,
                "metadata": {"name": "digits", "namespace": KEY[0]},
                "spec": {"source": {"configMap": {"name": "code"}}},
            }
        )
        self.apply(environment="own/digits", **spec)

    def write_source(self, text: str) -> None:
        data = {"digits.py": text}
        if self.store.get("ConfigMap", KEY[0], "code"):
            self.store.update("ConfigMap", KEY[0], "code", lambda code: code.update(data=data))
        else:
            self.store.create({"kind": "ConfigMap", "metadata": {"name": "code", "namespace": KEY[0]}, "data": data})

    def edit(self, **spec: Any) -> None:
        self.store.update(RUN_KIND, *KEY, lambda run: run["spec"].update(spec))

    async def reconcile(self) -> float | None:
        """One reconcile by an operator that is restarted when it dies."""
        for _ in range(20):
            try:
                return await reconcile(KEY, self.client, lambda: self.now, PACE, self.gaps)
            except KilledError:
                self.client.dies_at = None
            except ConflictError:
                continue
        pytest.fail("the reconcile does not come to an end")

    async def settle(self) -> None:
        """Reconcile until no more writes follow."""
        for _ in range(10):
            before = self.client.writes
            await self.reconcile()
            if self.client.writes == before:
                return
        pytest.fail("the reconcile does not come to rest")

    # --- what happens, and what the operator makes of it ---------------------------------------------------------
    async def start(self, **spec: Any) -> None:
        self.apply(**spec)
        await self.settle()

    async def change(self, **spec: Any) -> None:
        self.edit(**spec)
        await self.settle()

    async def report(self, phase: str, api: Any, trainer: Any, environment: Any = None) -> None:
        """As `play`."""
        self.play(phase, api, trainer, environment)
        await self.settle()

    async def train(self, **spec: Any) -> None:
        """Up to a run whose first group was accepted."""
        await self.start(**spec)
        await self.report("Running", ready(), ready(), ready())
        assert self.status.phase == "Running"

    async def succeed(self) -> None:
        await self.report("Succeeded", terminated(0), terminated(0, result()), terminated(0))
        assert self.status.phase == "Succeeded"

    async def fail(self, *, inside: bool = True) -> None:
        self.play_failure(inside=inside)
        await self.settle()

    async def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        await self.settle()

    @property
    def own(self) -> bool:
        return self.run.spec.environment.startswith("own/")

    @property
    def pods(self) -> tuple[PodObject, ...]:
        """The run's own pods, one per attempt."""
        return tuple(pod for pod in pods_of(self.store, KEY) if _component(pod) == TRAINING_COMPONENT)

    @property
    def environments(self) -> dict[str, PodObject]:
        """The environment pods, by the end of their name: attempt-env-slot-incarnation."""
        return self._apart(ENVIRONMENT_COMPONENT)

    @property
    def sandboxes(self) -> dict[str, PodObject]:
        """The sandbox pods, by the end of their name: attempt-sandbox-slot-incarnation."""
        return self._apart(SANDBOX_COMPONENT)

    def _apart(self, component: str) -> dict[str, PodObject]:
        apart = [pod for pod in pods_of(self.store, KEY) if _component(pod) == component]
        return {pod["metadata"]["name"].split("-", 2)[2]: pod for pod in apart}

    def names(self, kind: str) -> list[str]:
        """Names of the run's children of a kind, without the run's part."""
        found = self.store.list_all(kind, KEY[0], prefix="sorting-")
        return [re.sub("^sorting-[0-9a-f]{5}(?=-|$)", "sorting-U", each["metadata"]["name"]) for each in found]

    def play(self, phase: str, api: Any, trainer: Any, environment: Any = None, pod: PodObject | None = None) -> None:
        """Write a pod's status as its kubelet would, by default the newest one's. Without an `environment` it has no
        such container.
        """
        inside = [] if environment is None else [{"name": "environment", **environment}]
        status = {
            "phase": phase,
            "podIP": "10.0.0.1",
            "initContainerStatuses": [{"name": "api", **api}],
            "containerStatuses": [{"name": "trainer", **trainer}, *inside],
        }
        self._write_status(pod or self.pods[-1], status)

    def play_environment(self, name: str, environment: Any, phase: str = "Running", **status: Any) -> None:
        """Write the status of the environment pod of that name, as `environments` has it."""
        statuses = [{"name": "environment", **environment}]
        self._write_status(self.environments[name], {"phase": phase, "containerStatuses": statuses, **status})

    def play_sandbox(self, name: str, sandbox: Any, phase: str = "Running", **status: Any) -> None:
        """The same for a sandbox pod."""
        statuses = [{"name": "sandbox", **sandbox}]
        self._write_status(self.sandboxes[name], {"phase": phase, "containerStatuses": statuses, **status})

    def fail_environment(self, name: str, code: int = 1, message: str = "error: boom") -> None:
        self.play_environment(name, terminated(code, message, at=format_time(self.now)), "Failed")

    def _write_status(self, pod: PodObject, status: dict[str, Any]) -> None:
        self.store.update(
            "Pod",
            KEY[0],
            pod["metadata"]["name"],
            lambda pod: pod.update(status=status, spec={**pod["spec"], "nodeName": "here"}),
        )

    def change_pod(self, pod: PodObject, change: Callable[[dict[str, Any]], object]) -> None:
        """Another client changes its metadata."""
        self.store.update("Pod", KEY[0], pod["metadata"]["name"], lambda found: change(found["metadata"]))

    def kubelet(self) -> None:
        """Remove terminating pods that only the kubelet still holds."""
        for pod in (*self.environments.values(), *self.sandboxes.values()):
            if "deletionTimestamp" in pod["metadata"]:
                self.change_pod(pod, lambda metadata: metadata.update(finalizers=[]))

    def play_failure(self, *, inside: bool = True) -> None:
        trainer = terminated(1, failed_result("internal", "bug"), at=format_time(self.now))
        self.play("Failed", ready(), trainer, terminated(0) if inside else None)


def _component(pod: PodObject) -> str:
    return str(pod["metadata"]["labels"][COMPONENT_LABEL])


async def read_as_sort_digits(files: Mapping[str, str], entry: str | None) -> Catalog:
    """Discovery is not tested here: whatever the files contain, they count as the bundled environment."""
    found = bundled_catalog().named("sort_digits")
    assert found is not None
    found = found.with_changes(file_path=entry or min(files))
    return Catalog(environments=(found,), modules=tuple(sorted(files)))


def make_life(folder: Path, client: type[MortalClient] = MortalClient) -> Life:
    store = StateStore(Layout(folder), clock=lambda: life.now)
    attempt_metrics = ToldMetrics()
    own = OwnEnvironments(store.get, read_as_sort_digits)
    life = Life(
        store,
        client(store, own, attempt_metrics, Interpreters(store.layout, {})),
        attempt_metrics.trainers,
        attempt_metrics.histories,
    )
    return life
