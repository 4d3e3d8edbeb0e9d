"""Runs that were restored from a backup: they must not train again unless someone asks for it.

The rule. Before the status of a run says anything of its first pod, its name and uid are written on the run
(`mark_started`), where every backup of the object keeps them: whatever is in a backup without it had not begun. Then,
for a run that is not finished:

* its own name with another uid in the mark: it was started under that uid, deleted, and created again from a copy.
  Nothing is started, whatever its status says, and what its status says about that former life is dropped except for
  the checkpoint. Without the mark it is a run like any other, and starts from the beginning.
* another name in the mark: a copy under a new name, which is a new run. It starts.
* no mark, or its own name and uid: it continues according to its status. The same holds with a new installation of the
  operator, which finds all that it needs in the objects.

A finished run is finished by its status alone: if a backup restores the status, too, there is nothing left to ask.

A status that was edited by hand must not start anything twice: the pods show how far the run is.
"""

from collections.abc import Iterable, Sequence

from rl_operator.api.names import STARTED_AS_ANNOTATION, TRAINING_COMPONENT
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.view import Assessment
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.text.phase_table import Situation

RESTORED = "Restored"


def mark_of(run: TrainingRun) -> str:
    """The mark of a run that was started. Neither a run's name nor a uid contains a dot."""
    return f"{run.metadata.name}.{run.metadata.uid}"


def is_restored(run: TrainingRun) -> bool:
    """Whether the run was started in a former life and no one has asked for it since."""
    mark = run.metadata.annotations.get(STARTED_AS_ANNOTATION, "")
    name, _, uid = mark.rpartition(".")
    return not run.status.finished and name == run.metadata.name and uid != run.metadata.uid


def is_unmarked(run: TrainingRun) -> bool:
    """Whether a run that has begun still needs its mark. A restored one keeps that of its former life."""
    return run.metadata.annotations.get(STARTED_AS_ANNOTATION) != mark_of(run) and not is_restored(run)


def restored_finding(run: TrainingRun, left_over: Sequence[str]) -> Assessment:
    """The assessment of a restored run, with the two ways to continue. Pods that a backup restored train again by
    themselves; the user who restored them decides about them.
    """
    name, namespace = run.metadata.name, run.metadata.namespace
    again = f"kubectl -n {namespace} annotate rlrun {name} {STARTED_AS_ANNOTATION}-"
    sentences = [
        "Restored from a backup of a run that was started before: it does not start again on its own.",
        *(f"Pod {pod} came back with it and works unwatched: delete it." for pod in left_over[:1]),
        f"To train it from the beginning, run `rlctl resume {name}` or `{again}`.",
    ]
    if checkpoint := run.status.checkpoint:
        path = checkpoint.state_path
        sentences.append(
            f"To continue from step {checkpoint.step}, create a new run with startFrom.checkpoint: {path}."
        )
    return Assessment(Situation.STOPPED, RESTORED, " ".join(sentences))


def without_former_life(run: TrainingRun) -> TrainingRun:
    """The run with the part of its status that still holds. `startTime` stays: the API server lets no one clear it."""
    status = run.status
    kept = RunStatus(
        start_time=status.start_time, checkpoint=status.checkpoint, best=status.best, conditions=status.conditions
    )
    return run.with_changes(status=kept)


def repaired(status: RunStatus, pods: Iterable[PodObservation]) -> RunStatus:
    """The status, at least at the newest attempt that any of the run's own pods belongs to.

    The operator counts an attempt before it creates its pod. So a pod of a later attempt than the status knows means
    that the status was set back, and that what would be started now may already be running.
    """
    attempts = [pod for pod in pods if pod.component == TRAINING_COMPONENT]
    newest = max(attempts, key=lambda pod: pod.attempt, default=None)
    if newest is None or newest.attempt <= (status.attempt or 0):
        return status
    return status.with_changes(
        start_time=status.start_time or format_time(newest.created), attempt=newest.attempt, pod_name=newest.name
    )
