"""What is known about one run at one moment, and its assessment."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rl_contract.trainer_messages import Pause, TrainerResult
from rl_operator.api.names import TRAINER_CONTAINER
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import Attempt, QueueStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.attempt_fate import Ending
from rl_operator.status.attempt.clock_gaps import NO_GAPS, ClockGaps
from rl_operator.status.observed.attempt_metrics import AttemptMetrics
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.observed.wandb_run import is_current
from rl_operator.status.text.phase_table import Situation


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A run's position at a runtime that limits its active runs: how many of the others hold a slot, and how many wait
    before it. `namespace`: all three are those of the run's namespace, which has a share of the runtime.
    """

    limit: int
    active: int
    before: int
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class View(AttemptMetrics):
    """All that is known about one run at one moment, with the current attempt's metrics. `pod` is that attempt's;
    `pending` says what a new run waits for before it can be checked; `trouble` says why the last write for it was
    refused.
    """

    run: TrainingRun
    now: datetime
    backoff_seconds: float
    pod: PodObservation | None = None
    refusals: tuple[Refusal, ...] = ()
    pending: tuple[str, str] | None = None
    trouble: tuple[str, str] | None = None
    config_lost: str | None = None
    """Why the run's ConfigMap is lost for good; a running attempt continues without it."""

    config_hash: str | None = None
    """The hash that a draft would have."""

    environments: tuple[PodObservation, ...] = ()
    """Pods of environments that run separately, of every attempt."""

    sandboxes: tuple[PodObservation, ...] = ()
    """Sandbox pods, of every attempt."""

    left_over: tuple[str, ...] = ()
    """Names of pods that carry this run's labels, belong to a former life of it, and run."""

    replica_limit: int | None = None
    """The runtime's limit of environment processes."""

    queue_position: QueuePosition | None = None
    """None: the runtime does not limit its active runs."""

    namespace_is_deleted: bool = False
    """The run is about to be deleted with its namespace, in which nothing can be created anymore."""

    gaps: ClockGaps = NO_GAPS

    def moved(self, moment: datetime) -> datetime:
        """A recorded moment, as long before `now` as the run was watched since: what a duration is counted from."""
        return self.gaps.moved(moment, self.now)

    @property
    def started(self) -> bool:
        """In this life: `startTime` of a restored run may be from a former one."""
        return self.run.status.attempt is not None

    @property
    def last_attempt(self) -> Attempt | None:
        """The current attempt's record, once it has ended."""
        attempts = self.run.status.attempts
        return attempts[-1] if attempts and attempts[-1].attempt == self.run.status.attempt else None

    def of_attempt(self, pods: Iterable[PodObservation]) -> tuple[PodObservation, ...]:
        """Those of the current attempt."""
        return tuple(pod for pod in pods if pod.attempt == self.run.status.attempt)

    def living(self, pods: Iterable[PodObservation]) -> tuple[PodObservation, ...]:
        """Those of the current attempt that run or will run."""
        return tuple(pod for pod in self.of_attempt(pods) if not pod.over and not pod.deleting)

    @property
    def wandb_fills_in(self) -> bool:
        """Whether W&B's figures stand in for those of a trainer that cannot be reached."""
        return self.unreachable and self.wandb is not None and is_current(self.run)

    @property
    def pause(self) -> Pause | None:
        """Why training stands still though nothing is wrong with the run."""
        return self.trainer.pause if self.trainer else None

    @property
    def result(self) -> TrainerResult | None:
        """What the current attempt's trainer left at its end."""
        return self.pod.result if self.pod else None

    @property
    def training(self) -> bool:
        """Whether the current attempt's pod exists and nothing has ended it yet."""
        pod = self.pod
        if pod is None or pod.over or pod.deleting or self.last_attempt:
            return False
        trainer = pod.container(TRAINER_CONTAINER)
        return trainer is None or trainer.state != "Terminated"


@dataclass(frozen=True, slots=True)
class Assessment:
    """The situation of a run. `ending` is set only in the moment when an attempt's end is observed, `queue` while the
    run waits for a slot of its runtime.
    """

    situation: Situation
    reason: str
    message: str
    ending: Ending | None = None
    queue: QueueStatus | None = None
