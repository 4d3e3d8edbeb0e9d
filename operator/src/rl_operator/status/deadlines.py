"""The three deadlines of a run, as moments."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from rl_operator.api.run import TrainingRun
from rl_operator.status.observation import PodObservation, TrainerStatus, parse_time


@dataclass(frozen=True, slots=True)
class Deadline:
    at: datetime
    reason: str
    message: str

    def passed(self, now: datetime) -> bool:
        return now >= self.at


def deadlines(run: TrainingRun, pod: PodObservation, trainer: TrainerStatus | None) -> tuple[Deadline, ...]:
    """The deadlines that hold for the current attempt.

    start: from pod creation to the first group accepted; progress: since the last new step; active: since startTime.
    """
    spec, status, found = run.spec, run.status, list[Deadline]()
    working = status.condition("Ready")
    if spec.start_deadline_seconds is not None and not working:
        limit = spec.start_deadline_seconds
        message = f"No group was accepted within spec.startDeadlineSeconds ({limit})."
        found.append(Deadline(pod.created + timedelta(seconds=limit), "StartDeadlineExceeded", message))
    if spec.progress_deadline_seconds is not None and working:
        limit = spec.progress_deadline_seconds
        since = parse_time(working.last_transition_time)
        if trainer and trainer.last_step_at:
            since = max(since, parse_time(trainer.last_step_at))
        message = f"No new step within spec.progressDeadlineSeconds ({limit})."
        found.append(Deadline(since + timedelta(seconds=limit), "ProgressDeadlineExceeded", message))
    if spec.active_deadline_seconds is not None and status.start_time:
        limit = spec.active_deadline_seconds
        message = f"Not finished within spec.activeDeadlineSeconds ({limit})."
        end = parse_time(status.start_time) + timedelta(seconds=limit)
        found.append(Deadline(end, "ActiveDeadlineExceeded", message))
    return tuple(found)
