"""What a reconcile needs from a target. `cluster` and `local` each provide one; neither imports this module."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import ConfigMapObject, KubernetesObject, PolicyPeer
from rl_operator.api.refusal import Refusal
from rl_operator.api.runtime import Runtime
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import QueuePosition
from rl_operator.status.observed.attempt_metrics import AttemptMetrics
from rl_operator.status.observed.observation import PodObservation

Key = tuple[str, str]
"""Namespace and name of a run."""


class InputSource(Protocol):
    """The reads that a run's inputs come from. What is not async costs no I/O in a reconcile."""

    def run(self, key: Key) -> TrainingRun | None: ...

    def runtime(self, name: str) -> Runtime | None: ...

    def catalog(self, runtime: Runtime) -> Catalog | None:
        """The environments of the runtime's image; None while they have not been read yet."""
        ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str]: ...

    # --- live reads ---------------------------------------------------------------------------------------------
    async def environment(self, run: TrainingRun) -> Environment | None:
        """The RLEnvironment that the run names (own/NAME; in local mode also a file); None: it names none, or it does
        not exist. Cached in a cluster; in local mode its code is read.
        """
        ...

    async def read_run(self, key: Key) -> TrainingRun | None: ...

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        """One that cannot change may have been read before."""
        ...


class RunClient(InputSource, Protocol):
    """Reads marked `cached` cost no I/O. Writes are idempotent; every call may raise `errors.OperatorError`s."""

    # --- cached reads -------------------------------------------------------------------------------------------
    def runtime_names(self) -> tuple[str, ...]: ...

    def namespace_is_deleted(self, namespace: str) -> bool:
        """Whether its deletion has begun; False where that cannot be known."""
        ...

    def unreadable_runtime(self, name: str) -> Refusal | None:
        """The first fault of an RLRuntime that exists and cannot be parsed; `runtime` does not return it."""
        ...

    @property
    def ops_peers(self) -> Sequence[PolicyPeer]:
        """Who may connect to the ops ports of runs."""
        ...

    def children(self, key: Key) -> frozenset[tuple[str, str]]:
        """Kind and name of the run's existing children, besides pods."""
        ...

    def is_verified(self, run: TrainingRun) -> bool:
        """Whether the run's ConfigMap is still the object that was created here, or was held to be verified."""
        ...

    def hold_verified(self, config_map: KubernetesObject) -> None:
        """It holds what its run was started with, and cannot change."""
        ...

    def pods(self, key: Key) -> tuple[PodObservation, ...]:
        """All pods with this run's label, whatever run uid owns them."""
        ...

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        """What the trainer and W&B last reported for this attempt."""
        ...

    def queue_position(self, run: TrainingRun) -> QueuePosition | None:
        """The run's position at its runtime; None: the target or the runtime does not limit active runs."""
        ...

    def slot_claimed(self, run: TrainingRun) -> AbstractContextManager[None]:
        """Hold a slot for the run while its start is written, so that no other run takes it meanwhile."""
        ...

    def free_slot(self, pod: PodObservation) -> None:
        """Of a pod that outlives its run and counts as lost."""
        ...

    # --- live reads ---------------------------------------------------------------------------------------------
    async def read_files(self, environment: Environment) -> Mapping[str, str] | None:
        """The Python files of an own environment, by name; None if its source is gone or it is an image."""
        ...

    async def read_pod(self, namespace: str, name: str) -> PodObservation | None:
        """The live pod: a cache that lags behind must not be mistaken for a pod that is gone."""
        ...

    # --- writes -------------------------------------------------------------------------------------------------
    async def create_child(self, manifest: KubernetesObject) -> None:
        """Create a ConfigMap, Pod, Service or NetworkPolicy. If it exists: success only if our run's uid owns it and it
        is not being deleted, else NameTakenError.
        """
        ...

    async def delete_pod(self, pod: PodObservation) -> None:
        """Delete with a uid precondition; if it is already gone, that is success."""
        ...

    async def remove_gates(self, pod: PodObservation) -> None:
        """Let exactly that pod be scheduled; if it is already gone, that is success."""
        ...

    async def label_pod(self, pod: PodObservation, labels: Mapping[str, str]) -> None:
        """Put labels on exactly that pod: without its own no watch reports it."""
        ...

    async def save_history(self, run: TrainingRun, pod: PodObservation) -> None:
        """Add the attempt's history to the run's ConfigMap, which `status.historyName` names."""
        ...

    async def remove_finalizer(self, pod: PodObservation) -> None:
        """Remove our finalizer; if the pod is already gone, that is success."""
        ...

    async def delete_run(self, run: TrainingRun) -> None:
        """Delete exactly this version of the run; already gone is success. Raises ConflictError if it was changed."""
        ...

    async def write_status(self, run: TrainingRun, status: RunStatus) -> TrainingRun:
        """Write /status against the run's resourceVersion; returns the live run.

        Raises ConflictError if someone wrote in between, GoneError if the run is gone.
        """
        ...

    async def mark_started(self, run: TrainingRun) -> TrainingRun:
        """Mark exactly this version of the run as started (`status.attempt.restored.mark_of`); returns the live run.

        Raises ConflictError if someone wrote in between, GoneError if the run is gone.
        """
        ...

    def record_event(self, run: TrainingRun, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Report to users that something happened. Never fails, never waits."""
        ...
