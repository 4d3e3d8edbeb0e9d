"""The assessment and the next action: one row per state of a run."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    CREATED,
    ENDED,
    NOW,
    POD,
    RUNNING,
    STARTED,
    TRAINING,
    ended_pod,
    failed_result,
    make_environment,
    make_pod,
    make_view,
    ready,
    result,
    running,
    status_of,
    terminated,
    unscheduled,
    unscheduled_pod,
    waiting,
    working_pod,
    written,
)

from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal
from rl_operator.status.attempt.deadlines import SAVING
from rl_operator.status.attempt.pod_cleanup import LOST_AFTER, with_loss
from rl_operator.status.attempt.start_waits import PREPARATION
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation, format_time
from rl_operator.status.phase_and_action import (
    DELETION_SECONDS,
    LINGER_SECONDS,
    LONGEST_WAIT_SECONDS,
    Action,
    assess,
    decide,
    requeue_after,
)
from rl_operator.status.text.phase_table import Situation

REFUSAL = Refusal(code="LockedField", field="spec.trainer.lora_rank", given=8, locked=32, hint="it is locked to 32")
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "rollouts" not found. not found'  # measured with 1.36.3
STARTING = make_pod(ready(), ready(), running())
HALF_READY = make_pod(ready(), running(), running())
UNANSWERED = "The backend at http://tinker-service:8005 does not answer for more than 10 s: the connection is refused."
SILENT = ObservedTrainer(waiting=UNANSWERED, backend_silent=True)
PAUSE = {"cause": "BackendPaused", "since": "2026-05-01T12:41:07+02:00", "reason": "short on\ncapacity."}
FULL = {"cause": "BackendFull", "since": CREATED, "reason": "Maximum number of LoRA adapters (6) reached"}
DISK_FULL = {"cause": "DiskFull", "since": CREATED, "reason": "0 of 12 MB free"}
STANDING_STILL: dict[str, Any] = {**RUNNING, "conditions": [RUNNING["conditions"][0] | {"reason": "BackendPaused"}]}
FAILED_POD = ended_pod(terminated(1, failed_result("internal", "bug")))
COST = {"amount": 19.5, "currency": "USD", "budget": 20}
COSTING: dict[str, Any] = {**RUNNING, "cost": COST}


def _budget(amount: float) -> dict[str, Any]:
    return {"budget": {"amount": amount, "currency": "USD"}}


BUDGET = _budget(20)
SPENT_POD = ended_pod(terminated(1, failed_result("budget", "19.50 of 20", cost=COST)))
STOPPED_POD = make_pod(
    terminated(0), terminated(0, result(outcome="stopped")), terminated(0), phase="Failed", deleting=True
)
LOST = with_loss(make_pod(running(), running(), running(), deleting=True), NOW + LOST_AFTER)
SUSPENDED = {"suspend": True}


def ended(reason: str, *, attempts: int = 1, steps: int = 0, **more: Any) -> dict[str, Any]:
    """The status of a run whose current attempt has ended and is recorded."""
    records = [
        {"attempt": n + 1, "pod": POD, "ended": ENDED, "reason": reason, "steps": steps} for n in range(attempts)
    ]
    return {**STARTED, "phase": "Pending", "attempt": attempts, "attempts": records, **more}


def stopping(reason: str) -> dict[str, Any]:
    """The status of a run whose attempt is being ended, with its reason written."""
    why = {**STARTED["conditions"][0], "reason": reason, "message": f"Something is late. {SAVING}"}
    return {**STARTED, "phase": "Stopping", "conditions": [why]}


def unprepared(since: datetime) -> PodObservation:
    """A pod whose node has not mounted its volumes."""
    condition = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": format_time(since)}
    volumes = [{"configMap": {"name": "sorting-0a1b2c3d"}}, {"emptyDir": {}}, {"secret": {"secretName": "tls"}}]
    spec = {"volumes": [*volumes, {"persistentVolumeClaim": {"claimName": "rollouts"}}]}
    return make_pod(waiting(), waiting(), waiting(), phase="Pending", spec=spec, conditions=[condition])


FINDINGS: dict[str, dict[str, View]] = {
    "WAITING Starting START": {"new": make_view()},
    "REFUSED LockedField REST": {"refused": make_view(refusals=(REFUSAL,))},
    "DRAFT Draft RENDER": {"draft": make_view(spec=SUSPENDED)},
    "STARTING PodStarting CREATE": {
        "frozen, nothing created yet": make_view(STARTED),
        "settings edited after the start": make_view(
            STARTED, refusals=(Refusal(code="FrozenField", field="spec.config", hint=FROZEN),)
        ),
        "its pod vanished while it was starting": make_view(STARTED),
    },
    "STARTING PodStarting REST": {
        "pod starting": make_view(STARTED, pod=STARTING),
        "trainer killed while it started": make_view(
            STARTED, pod=make_pod(ready(), terminated(137, reason="OOMKilled"), running())
        ),
        "its volumes are not mounted yet": make_view(STARTED, pod=unprepared(NOW - timedelta(seconds=20))),
    },
    "STARTING BackendSilent REST": {
        "its trainer cannot reach the backend": make_view(STARTED, pod=HALF_READY, trainer=SILENT)
    },
    "STARTING BackendFull REST": {
        "the backend has no room for it": make_view(STARTED, pod=HALF_READY, trainer=ObservedTrainer(pause=FULL))
    },
    "RUNNING BackendPaused REST": {
        "paused by the backend": make_view(RUNNING, pod=TRAINING, trainer=ObservedTrainer(pause=PAUSE)),
        "paused, and silent for a moment": make_view(STANDING_STILL, pod=TRAINING),
    },
    "RUNNING DiskFull REST": {
        "its disk is full": make_view(RUNNING, pod=TRAINING, trainer=ObservedTrainer(pause=DISK_FULL))
    },
    "STARTING TrainerUnheard REST": {"its trainer is not heard": make_view(STARTED, pod=HALF_READY, unheard=True)},
    "STARTING NameTaken CREATE": {
        "a name taken": make_view(STARTED, trouble=("NameTaken", "Pod x belongs to somebody."))
    },
    "STARTING ImageNotPulled REST": {
        "image missing": make_view(
            STARTED, pod=make_pod(waiting("ImagePullBackOff", "no such image"), waiting(), waiting())
        )
    },
    "WAITING CreationRefused RENDER": {
        "a draft that cannot be rendered": make_view(
            spec=SUSPENDED, trouble=("CreationRefused", "Not created: the environment is gone.")
        )
    },
    "STARTING ContainerConfigMissing REST": {
        "configuration missing": make_view(
            STARTED, pod=make_pod(ready(), waiting("CreateContainerConfigError", 'configmap "k" not found'), ready())
        )
    },
    "STARTING Unschedulable REST": {"no node": make_view(STARTED, pod=unscheduled_pod("Unschedulable", "0/1 nodes"))},
    "STARTING ClaimMissing REST": {"no claim": make_view(STARTED, pod=unscheduled_pod("Unschedulable", NO_CLAIM))},
    "RUNNING Training REST": {
        "all ready": make_view(STARTED, pod=TRAINING),
        "paused, and out of reach": make_view(STANDING_STILL, pod=TRAINING, unreachable=True),
        "running stays running when a probe fails": make_view(RUNNING, pod=STARTING),
    },
    "STOPPING Suspended STOP": {"suspend asked": make_view(RUNNING, pod=TRAINING, spec=SUSPENDED)},
    "STOPPING Suspended REST": {
        "stopping": make_view(RUNNING, pod=working_pod(deleting=True), spec=SUSPENDED),
        "suspended, and let go again while it saves": make_view(
            stopping("Suspended"), pod=make_pod(running(), running(), running(), deleting=True)
        ),
    },
    "STOPPED Stopped REST": {
        "stopped": make_view(
            RUNNING, pod=ended_pod(terminated(0, result(outcome="stopped")), deleting=True), spec=SUSPENDED
        ),
        "suspended before the pod was created": make_view(STARTED, spec=SUSPENDED),
        "still stopped": make_view(ended("Stopped"), spec=SUSPENDED),
        "at its budget and suspended": make_view(COSTING | ended("BudgetReached"), spec=BUDGET | SUSPENDED),
        "suspended after it had failed": make_view(RUNNING, pod=FAILED_POD, spec=SUSPENDED),
        "its node is lost while it stops": make_view(stopping("Suspended"), pod=LOST, spec=SUSPENDED),
        "its pod vanished while it stopped": make_view(stopping("Suspended"), spec=SUSPENDED),
    },
    "WAITING Resuming START": {
        "resumed: no backoff after a stop": make_view(ended("Stopped")),
        "budget raised: no backoff": make_view(COSTING | ended("BudgetReached"), spec=_budget(20.01)),
        "budget taken away": make_view(COSTING | ended("BudgetReached")),
    },
    "STOPPED BudgetReached REST": {
        "its budget is reached": make_view(COSTING, pod=SPENT_POD, spec=BUDGET),
        "at its budget": make_view(COSTING | ended("BudgetReached"), spec=BUDGET),
        "at its budget, which was lowered": make_view(COSTING | ended("BudgetReached"), spec=_budget(10)),
        "at its budget and past its deadline": make_view(
            COSTING | ended("BudgetReached"), spec=BUDGET | {"activeDeadlineSeconds": 1}
        ),
    },
    "WAITING Resuming REST": {
        "its budget was raised meanwhile": make_view(COSTING, pod=SPENT_POD, spec=_budget(30)),
        "suspended, let go again, and over": make_view(stopping("Suspended"), pod=STOPPED_POD),
    },
    "WAITING BackOff REST": {
        "first failure": make_view(RUNNING, pod=FAILED_POD),
        "backing off": make_view(ended("TrainerFailed", attempts=3), now=NOW),
        "its node is lost": make_view(RUNNING, pod=LOST),
        "its pod vanished while it was running": make_view(RUNNING),
    },
    "WAITING BackOff START": {
        "backed off long enough": make_view(ended("TrainerFailed"), now=NOW + timedelta(minutes=1))
    },
    "FAILED TrainerFailed REST": {
        "backoffLimit reached": make_view({**RUNNING, "failedAttempts": 3}, pod=FAILED_POD),
        "suspended after its last failure": make_view({**RUNNING, "failedAttempts": 3}, pod=FAILED_POD, spec=SUSPENDED),
    },
    "FAILED ProcessSilent REST": {
        "five attempts without a new step": make_view(
            {**ended("ProcessSilent", attempts=5, steps=7), "attempt": 6},
            pod=ended_pod(terminated(1, failed_result("silence", "gone"))),
        )
    },
    "SUCCEEDED Succeeded REST": {
        "success": make_view(RUNNING, pod=make_pod(ready(), terminated(0, result()), terminated(0), phase="Succeeded")),
        "success before the last step": make_view(
            RUNNING,
            pod=make_pod(
                ready(),
                terminated(0, result(stepsTrained=12, stoppedEarly="it is good")),
                terminated(0),
                phase="Succeeded",
            ),
        ),
    },
    "ENDING Ending REST": {
        "trainer done, the pod is ending": make_view(RUNNING, pod=make_pod(ready(), terminated(0, result()), ready())),
        "environment done, the trainer saves": make_view(RUNNING, pod=make_pod(ready(), ready(), terminated(0))),
        "environment killed, the trainer saves": make_view(RUNNING, pod=make_pod(ready(), ready(), terminated(137))),
    },
    "ENDING Ending STOP": {
        "trainer done, the pod lingers": make_view(
            RUNNING,
            pod=make_pod(ready(), terminated(0, result()), ready()),
            now=NOW + timedelta(seconds=LINGER_SECONDS),
        )
    },
    "STOPPING PodDeleting REST": {
        "somebody else deletes the pod": make_view(
            RUNNING, pod=make_pod(running(), running(), running(), deleting=True)
        )
    },
    "FAILED ProgressDeadlineExceeded REST": {
        "its node is lost while it is ended for a deadline": make_view(stopping("ProgressDeadlineExceeded"), pod=LOST)
    },
    "STARTING ContainerCrashing REST": {
        "a container crashes again and again": make_view(
            STARTED, pod=make_pod(waiting("CrashLoopBackOff", "back-off 40s"), waiting(), waiting())
        )
    },
    "STARTING PodNotPrepared REST": {
        "its volumes are not mounted": make_view(STARTED, pod=unprepared(NOW - PREPARATION))
    },
}
"""Views, by situation, reason and what is done next."""

ROWS: dict[str, tuple[View, Situation, str, Action]] = {
    name: (view, Situation[situation], reason, Action[verb])
    for (situation, reason, verb), views in ((finding.split(), views) for finding, views in FINDINGS.items())
    for name, view in views.items()
}


@pytest.mark.parametrize(("view", "situation", "reason", "verb"), ROWS.values(), ids=ROWS)
def test_row(view: View, situation: Situation, reason: str, verb: Action) -> None:
    assessment = assess(view)
    assert (assessment.situation, assessment.reason, decide(view)) == (situation, reason, verb)
    assert assessment.message


def training(**told: Any) -> View:
    """A training run whose trainer says this."""
    return make_view(RUNNING, pod=TRAINING, trainer=ObservedTrainer(total_steps=40, **told))


ENDING = make_view(RUNNING, pod=make_pod(ready(), ready(), terminated(0)), trainer=ObservedTrainer(pause=PAUSE))
PAUSED_SINCE = "Paused by the backend since 10:41 UTC: short on capacity."


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (training(step=3, pause=PAUSE, waiting="Hm."), f"{PAUSED_SINCE} Training: step 3 of 40."),
        (
            make_view(STARTED, pod=HALF_READY, trainer=ObservedTrainer(pause=FULL)),
            f"The backend is full since 11:50 UTC: {FULL['reason']}. Waiting for trainer, environment.",
        ),
        (ENDING, f"The environment is done: waiting for the trainer to end. {PAUSED_SINCE}"),
    ],
    ids=["training", "starting", "ending"],
)
def test_a_run_that_stands_still_says_why_and_since_when(view: View, said: str) -> None:
    assert assess(view).message == said


def last(reason: str, code: int, message: str = "") -> dict[str, Any]:
    """How the last instance of a container ended."""
    return {"lastState": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}


LIMITS = {"initContainers": [{"name": "api", "resources": {"limits": {"memory": "64Mi"}}}]}
DISK = last("Error", 1, "error: the disk is full")
OOM = make_pod(ready(), terminated(137, reason="OOMKilled"), ready())
TRAINER_DONE = make_pod(running(), terminated(0, result()), terminated(0))
ENVIRONMENT_DONE = make_pod(running(), ready(), terminated(0))
NOTHING_SAVED = result(outcome="failed", stepsTrained=0, statePath=None, samplerPath=None)
OTHERS_END = "waiting for the pod's other containers to end."
SAID: dict[str, tuple[View, str]] = {
    "how many more refusals": (
        make_view(refusals=(REFUSAL, REFUSAL)),
        "Refused: spec.trainer.lora_rank is 8: it is locked to 32 (and 1 more)",
    ),
    "what the trainer waits for, and its warnings": (
        training(step=3, waiting="the backend is slow", warnings=("held-out accuracy fell", "KL is 0.2.")),
        "Training: step 3 of 40. The backend is slow. Held-out accuracy fell. KL is 0.2.",
    ),
    "a checkpoint in the middle": (training(phase="saving", step=5), "Training: step 5 of 40."),
    "the checkpoint at the end": (
        training(phase="saving", step=40),
        "All steps are trained: saving the weights and evaluating them.",
    ),
    "why it ends early": (
        training(phase="done", step=12, stopped_early="held-out 0.97 reached 0.95"),
        "Training stopped early at step 12: held-out 0.97 reached 0.95. The weights are being saved and evaluated.",
    ),
    "how to resume": (
        ROWS["stopped"][0],
        "Stopped with a checkpoint of step 40; to resume, set spec.suspend to false (rlctl resume sorting).",
    ),
    "a failure before the stop": (
        ROWS["suspended after it had failed"][0],
        "Stopped with a checkpoint…TrainerFailed in trainer (exit code 1): bug.",
    ),
    "how it ended, and when and where it goes on": (
        ROWS["first failure"][0],
        (
            "TrainerFailed in trainer (exit code 1): bug."
            " Attempt 2 starts at 2026-05-01T11:59:40Z from the checkpoint of step 7."
        ),
    ),
    "a failure for good, with a checkpoint": (
        make_view(RUNNING, pod=ended_pod(terminated(3, failed_result("credentials", "401")))),
        (
            "CredentialsRefused in trainer (exit code 3): 401. Trying again cannot help."
            " The checkpoint of step 7 is kept: a new run can start from it (spec.startFrom)."
        ),
    ),
    "a failure for good, without one": (
        make_view(RUNNING, pod=ended_pod(terminated(2, NOTHING_SAVED))),
        "…Trying again cannot help. Fix that and start a new run.",
    ),
    "when a pod counts as lost": (
        ROWS["somebody else deletes the pod"][0],
        (
            "…The pod was to be gone by 2026-05-01T11:59:30Z: unless node n1 answers, it counts as lost at"
            " 2026-05-01T12:00:30Z."
        ),
    ),
    "an unmounted volume": (
        ROWS["its volumes are not mounted"][0],
        (
            "…node n1 has not mounted its volumes (ConfigMap sorting-0a1b2c3d, Secret tls, PersistentVolumeClaim "
            f"rollouts)…kubectl -n team-a describe pod {POD}…"
        ),
    ),
    "how a crashing container ended": (
        make_view(
            STARTED,
            pod=make_pod(waiting("CrashLoopBackOff") | last("OOMKilled", 137), waiting(), waiting(), spec=LIMITS),
        ),
        "…keeps ending: OOMKilled, exit code 137: its memory limit is 64Mi.…",
    ),
    "the same while it runs again, before a deadline passes": (
        make_view(STARTED, pod=make_pod(running() | DISK, waiting(), waiting())),
        f"Container api of pod {POD} keeps ending: Error, exit code 1: the disk is full.…",
    ),
    "until it is ready": (
        make_view(STARTED, pod=make_pod(ready() | DISK, running(), waiting())),
        "Waiting for trainer, environment.",
    ),
    "the scheduler": (
        ROWS["no node"][0],
        f"No node takes pod {POD}: 0/1 nodes. It starts when a node has room for it.",
    ),
    "a claim that is missing": (
        ROWS["no claim"][0],
        (
            "PersistentVolumeClaim team-a/rollouts, in which the runtime keeps rollouts, does not exist: create it, "
            "and the run starts; or have spec.rollouts of the RLRuntime changed, and start a new run."
        ),
    ),
    "a claim that is not bound is no matter of room": (
        make_view(STARTED, pod=unscheduled_pod("Unschedulable", "pod has unbound immediate PersistentVolumeClaims.")),
        "…It starts when its PersistentVolumeClaim is bound: kubectl get pvc says what that waits for.",
    ),
    "the backend, while it starts": (
        make_view(STARTED, pod=HALF_READY, trainer=ObservedTrainer(waiting="the trainer waits for its backend")),
        "Waiting for trainer, environment. The trainer waits for its backend.",
    ),
    "a silent backend": (
        make_view(STARTED, pod=HALF_READY, trainer=SILENT),
        f"Waiting for trainer, environment. {UNANSWERED}",
    ),
    "an api that is started again": (
        make_view(RUNNING, pod=make_pod(terminated(137), ready(), ready())),
        "Training.",
    ),
} | {
    f"{what}, {name}": (make_view(status, pod=pod), words)
    for name, status in (("starting", STARTED), ("running", RUNNING))
    for what, pod, words in (
        ("a failed container", OOM, f"Container trainer has failed (OOMKilled, exit code 137): {OTHERS_END}"),
        ("a done trainer", TRAINER_DONE, f"The trainer is done: {OTHERS_END}"),
        ("a done environment", ENVIRONMENT_DONE, "The environment is done: waiting for the trainer to end."),
    )
}
"""Whole messages; an ellipsis stands for anything."""


@pytest.mark.parametrize(("view", "message"), SAID.values(), ids=SAID)
def test_message(view: View, message: str) -> None:
    found = assess(view).message
    assert re.fullmatch(".*".join(map(re.escape, message.split("…"))), found), found


def test_a_training_run_without_deadlines_needs_no_clock() -> None:
    view = make_view(RUNNING, pod=TRAINING, spec={"progressDeadlineSeconds": None})
    assert requeue_after(view, assess(view)) is None


def test_a_run_at_its_budget_says_what_is_spent_and_how_to_go_on() -> None:
    view = make_view(COSTING, pod=SPENT_POD, spec=BUDGET)
    status = status_of(view)
    assert status.message == (
        "BudgetReached: 19.50 of 20.00 USD spent. Stopped with a checkpoint of step 7 of 40; to go on, "
        "raise spec.budget (rlctl resume sorting --budget AMOUNT)."
    )
    assert (status.failure, status.attempts[-1].reason, status.failed_attempts) == (None, "BudgetReached", None)
    [suspended] = [condition for condition in status.conditions if condition.type == "Suspended"]
    assert (status.phase, suspended.reason) == ("Stopped", "BudgetReached")
    assert requeue_after(view, assess(view)) is None


def test_backing_off_says_the_same_once_it_is_recorded() -> None:
    view = ROWS["first failure"][0]
    again = assess(written(view))
    assert (again.message, again.ending) == (assess(view).message, None)


def test_a_pod_that_soon_counts_as_lost_is_checked_then() -> None:
    view = make_view(RUNNING, pod=make_pod(running(), running(), running(), deleting=True))
    assert requeue_after(view, assess(view)) == pytest.approx(30)


def test_a_slow_node_is_checked_when_it_is_late() -> None:
    view = ROWS["its volumes are not mounted yet"][0]
    assert requeue_after(view, assess(view)) == pytest.approx(40)


def test_why_an_environment_is_replaced_comes_before_what_its_replacement_waits_for() -> None:
    failed = make_environment(0, 0, terminated(1, "error: ValueError: no (digits.py, line 3)"), phase="Failed")
    again = make_environment(0, 1, waiting(), phase="Pending", conditions=[unscheduled("Unschedulable")])
    apart = {**STARTED, "environments": {"desired": 1, "ready": 0}}
    pod, spec = make_pod(ready(), running()), {"environment": "own/digits"}
    view = make_view(apart, pod=pod, environments=(failed, again), spec=spec)
    assert assess(view).reason == "EnvironmentFailing"
    cause, _, consequence = assess(view).message.partition(" It is replaced")
    assert cause.startswith("EnvironmentFailed (exit code 1): ValueError: no (digits.py, line 3)")
    assert "No node takes pod" in consequence


def test_a_clock_set_back_delays_nothing() -> None:
    """By the current clock the attempt ended an hour from now: the next one starts at once."""
    view = make_view(ended("TrainerFailed"), now=NOW - timedelta(hours=1))
    assert decide(view) is Action.START


def test_time_is_checked_every_ten_minutes() -> None:
    view = make_view(RUNNING, pod=TRAINING, spec={"activeDeadlineSeconds": 1_000_000})
    assert requeue_after(view, assess(view)) == LONGEST_WAIT_SECONDS


def test_the_end_of_an_attempt_is_written_before_its_pod_is_deleted() -> None:
    view = make_view(STARTED, pod=STARTING, trainer=ObservedTrainer(), spec={"startDeadlineSeconds": 60})
    assessment = assess(view)
    assert (assessment.reason, decide(view)) == ("StartDeadlineExceeded", Action.REST)
    assert requeue_after(view, assessment) == DELETION_SECONDS
    assert decide(written(view)) is Action.STOP


def test_no_further_attempt_is_announced_in_a_namespace_that_is_being_deleted() -> None:
    """A namespace's objects go one after another: the pod may be gone before the run is."""
    deleting = make_pod(ready(), ready(), ready(), deleting=True)
    later = make_view(ended("TrainerFailed"), now=NOW + timedelta(minutes=1))
    for view in (make_view(RUNNING, pod=deleting), make_view(RUNNING, pod=FAILED_POD), later):
        told = assess(replace(view, namespace_is_deleted=True)).message
        assert "namespace is" in told
        assert "attempt 2" not in told.lower()
        assert "another attempt" not in told
    assert (decide(later), decide(replace(later, namespace_is_deleted=True))) == (Action.START, Action.REST)
