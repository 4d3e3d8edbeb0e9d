"""Environments in pods of their own: which pods there should be, and when their failures end an attempt.

Slots number a run's environments. A bundled one serves slot 0 inside the run's own pod and the others in separate pods;
an own environment is untrusted and always separate. No state is kept: failures are counted from the pods that exist.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from rl_operator.api.environment import runs_apart
from rl_operator.api.names import ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.api.status_fields import EnvironmentPods
from rl_operator.api.training_run import TrainingRun
from rl_operator.backoff import pause_seconds
from rl_operator.status.attempt.attempt_fate import Ending, Fate, environment_ending
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation

MAX_FAILURES = 3
"""More failed pods than this in one attempt, and none running: the attempt ends."""

KEPT_FAILURES = 5
"""Failed pods of an attempt that are kept for their logs, the newest ones."""


ENVIRONMENTS_FAILED = "EnvironmentsFailed"
"""The reason while an attempt is ended because of its environments."""

EVALUATOR = 0
"""The slot whose environment runs the evaluations."""

IN_ORDER_SECONDS = 60.0
"""By then the trainer, which is polled every half minute, has reported whether all steps are trained."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A missing pod: its slot, and how many pods the slot has had."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a run's pods of one kind. `due` are the times at which replacements may be created."""

    create: tuple[Slot, ...] = ()
    delete: tuple[PodObservation, ...] = ()
    due: tuple[datetime, ...] = ()

    @classmethod
    def of(cls, view: View, missing: Iterable[tuple[Slot, datetime]], needless: Iterable[PodObservation]) -> Self:
        """`missing`: with the times from which on each may be created. None is before the run's pod has a node, whose
        room they might take.
        """
        slots, has_node = tuple(missing), view.pod is not None and view.pod.address is not None
        return cls(
            create=tuple(slot for slot, due in slots if due <= view.now and has_node),
            delete=tuple(pod for pod in needless if not pod.deleting),
            due=tuple(due for _, due in slots if due > view.now),
        )


def replicas(run: TrainingRun, limit: int | None) -> int:
    """The environment processes that a run may have: what it asks for, up to the runtime's limit.

    If the limit is lowered while the run exists, the run keeps what it has.
    """
    asked = run.spec.environment_replicas
    return asked if limit is None else min(asked, max(limit, in_force(run)))


def in_force(run: TrainingRun) -> int:
    """The environment processes that were granted to the run."""
    pods = run.status.environments
    inside = 0 if runs_apart(run.spec.environment) else 1
    return pods.desired + inside if pods else 1


def at_start(run: TrainingRun, limit: int | None) -> EnvironmentPods | None:
    """`status.environments` of an attempt that begins now; None: its only environment is inside the run's pod."""
    wanted = replicas(run, limit)
    if not runs_apart(run.spec.environment) and wanted == 1:
        return None
    return EnvironmentPods(desired=len(_slots(run, wanted)), ready=0)


def observed(view: View) -> EnvironmentPods | None:
    if view.run.status.environments is None:
        return None
    return EnvironmentPods(desired=len(_wanted(view)), ready=len(_ready(view)), failures=len(failures(view)))


def plan_environments(view: View) -> Plan:
    """Before and while the trainer saves, the pods are left alone; once the attempt is over, none keeps running."""
    if view.run.status.environments is None or is_over(view):
        return Plan(delete=tuple(p for p in view.environments if (not p.over or p.left_to_others) and not p.deleting))
    if not view.training:
        return Plan()
    return Plan.of(view, _missing(view), _needless(view))


def verdict(view: View) -> Ending | None:
    """How the environments end the attempt: a failure that would recur, too many failures with none running, or the
    evaluating one, which is not replaced.

    It is recorded before the run's pod is deleted for it, and holds from then on: afterwards none runs anyway.
    """
    recorded = given_up(view)
    if not recorded and (not view.training or _trained(view)):
        return None
    if view.pod and _failed_inside(view):
        return environment_ending(view.pod)
    endings = [environment_ending(pod) for pod in failures(view)]
    final = next((ending for ending in endings if ending.fate is Fate.FINAL), None)
    if final is None and not recorded and (len(endings) <= MAX_FAILURES or any_ready(view)):
        return None
    return final or (endings[-1] if endings else Ending(Fate.APPLICATION, ENVIRONMENTS_FAILED))


def given_up(view: View) -> bool:
    """Whether the status records that the environments end the attempt."""
    before = view.run.status.condition("Reconciling")
    return before is not None and before.reason == ENVIRONMENTS_FAILED


def last_failure(view: View) -> Ending | None:
    failed = failures(view)
    return environment_ending(failed[-1]) if failed else None


def failures(view: View) -> tuple[PodObservation, ...]:
    """The pods of this attempt that failed by themselves while there was work to do, oldest first."""
    trainer = view.pod.container(TRAINER_CONTAINER) if view.pod else None
    until = trainer.finished_at if trainer else None
    failed = [p for p in view.of_attempt(view.environments) if _failed(p) and (until is None or _ended(p) <= until)]
    failed = [p for p in failed if _exit_code(p) or (_believed(view, p) <= view.now and not _trained(view))]
    return tuple(sorted(failed, key=lambda pod: (_ended(pod), pod.slot, pod.incarnation)))


def any_ready(view: View) -> bool:
    """Whether a group from any environment was accepted, wherever it runs."""
    inside = view.pod.container(ENVIRONMENT_CONTAINER) if view.pod else None
    return (inside is not None and inside.state == "Ready") or bool(_ready(view))


def is_over(view: View) -> bool:
    """Whether nothing of the current attempt is to run any longer."""
    if view.last_attempt:
        return True
    return view.pod.over if view.pod else view.run.spec.suspend


def replacement_sentence(view: View) -> str:
    """The pod that failed last, if no other pod of its slot runs; else empty."""
    working = {pod.slot for pod in _ready(view)}
    failed = [pod for pod in failures(view) if pod.slot not in working]
    if not failed:
        return ""
    ending, count = environment_ending(failed[-1]), len(failures(view))
    follows = f"It is replaced ({count} failed so far)." if verdict(view) is None else f"{count} failed so far."
    return f"{ending.reason} (exit code {ending.exit_code}): {ending.message}. {follows}"


def replica_sentence(view: View) -> str:
    """Why there are fewer environments than `spec.environmentReplicas` asks for; empty if there are not."""
    asked = view.run.spec.environment_replicas
    if asked > (allowed := replicas(view.run, view.replica_limit)):
        return f"spec.environmentReplicas is {asked}, and {allowed} is the most that the runtime allows."
    if view.run.status.environments is None and asked > 1:
        return f"spec.environmentReplicas is {asked}: more than one needs the next attempt (stop and resume)."
    return ""


def _missing(view: View) -> Iterator[tuple[Slot, datetime]]:
    """Requested slots without a live pod, and when each may be filled: a pod that ended is replaced after a pause."""
    mine = view.of_attempt(view.environments)
    living = {pod.slot for pod in view.living(view.environments)}
    for slot in _wanted(view):
        former = [pod for pod in mine if pod.slot == slot]
        if slot in living or (_trained(view) and not _evaluates_yet(slot, former)):
            continue
        ended = [pod for pod in former if pod.over]
        pause = timedelta(seconds=pause_seconds(view.backoff_seconds, len(ended)))
        due = max((max(view.moved(_ended(pod)) + pause, _believed(view, pod)) for pod in ended), default=view.now)
        yield Slot(slot, max((pod.incarnation for pod in former), default=-1) + 1), due


def _evaluates_yet(slot: int, former: list[PodObservation]) -> bool:
    """All steps are trained: only the final weights remain to be evaluated, unless an environment ended normally."""
    return slot == EVALUATOR and not any(_exit_code(pod) == 0 for pod in former)


def _needless(view: View) -> Iterator[PodObservation]:
    """Surplus slots, other attempts, replaced pods, and failures beyond those that are kept."""
    wanted, failed = _wanted(view), failures(view)
    living = {
        pod.slot: pod.incarnation for pod in sorted(view.living(view.environments), key=lambda pod: pod.incarnation)
    }
    for pod in view.environments:
        if pod.attempt != view.run.status.attempt:
            yield pod
        elif pod in failed:
            if pod in failed[:-KEPT_FAILURES]:
                yield pod
        elif pod.slot not in wanted or pod.incarnation != living.get(pod.slot, pod.incarnation):
            yield pod


def _wanted(view: View) -> range:
    return _slots(view.run, replicas(view.run, view.replica_limit))


def _slots(run: TrainingRun, wanted: int) -> range:
    return range(0 if runs_apart(run.spec.environment) else 1, wanted)


def _ready(view: View) -> tuple[PodObservation, ...]:
    """Only while the run's own pod exists: afterwards no groups are accepted."""
    if view.pod is None or view.pod.over:
        return ()
    found = ((pod, pod.container(ENVIRONMENT_CONTAINER)) for pod in view.living(view.environments))
    return tuple(pod for pod, container in found if container and container.state == "Ready")


def _trained(view: View) -> bool:
    """No step follows: environments end normally, and only the evaluating one may be needed once more."""
    step = view.trainer or view.run.status.progress
    return step is not None and (bool(step.stopped_early) or 0 < step.total_steps <= step.step)


def _failed_inside(view: View) -> bool:
    """The one in the run's own pod failed, possibly before it reached the trajectory API."""
    container = view.pod.container(ENVIRONMENT_CONTAINER) if view.pod else None
    return view.run.status.environments is not None and container is not None and bool(container.exit_code)


def _failed(pod: PodObservation) -> bool:
    """Ended by itself, whatever the result: no eviction, no lost node, no deletion."""
    disturbed = pod.disruption or pod.deleting or pod.reason == "Evicted"
    return pod.over and not disturbed and _exit_code(pod) is not None


def _exit_code(pod: PodObservation) -> int | None:
    container = pod.container(ENVIRONMENT_CONTAINER)
    return container.exit_code if container else None


def _believed(view: View, pod: PodObservation) -> datetime:
    """When to treat an end as a failure. An environment that ends normally may know before us that the run is over."""
    return view.moved(_ended(pod)) + (timedelta(seconds=IN_ORDER_SECONDS) if _exit_code(pod) == 0 else timedelta())


def _ended(pod: PodObservation) -> datetime:
    container = pod.container(ENVIRONMENT_CONTAINER)
    return (container.finished_at if container else None) or pod.created
