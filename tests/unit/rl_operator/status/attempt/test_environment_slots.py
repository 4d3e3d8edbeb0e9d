"""Which environment pods there should be, and when their failures end an attempt: one row per state."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import (
    NOW,
    RUNNING,
    STARTED,
    disruption,
    failed_result,
    make_environment,
    make_pod,
    make_run,
    make_view,
    ready,
    result,
    running,
    terminated,
    unscheduled,
    waiting,
    working_pod,
)

from rl_operator.api.status_fields import EnvironmentPods
from rl_operator.status.attempt.environment_slots import (
    ENVIRONMENTS_FAILED,
    IN_ORDER_SECONDS,
    KEPT_FAILURES,
    Slot,
    at_start,
    observed,
    plan_environments,
    replicas,
    verdict,
)
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation, format_time
from rl_operator.status.phase_and_action import Action, assess, decide, requeue_after
from rl_operator.status.text.phase_table import Situation

OWN = {"environment": "own/digits"}
WORKING = make_pod(ready(), ready(), podIP="10.0.0.1")
WORKING_INSIDE = working_pod(podIP="10.0.0.1")
TRAINED = ObservedTrainer(step=40, total_steps=40)
STOPPED_EARLY = ObservedTrainer(step=12, total_steps=40, stopped_early="good enough")


def apart(*pods: PodObservation, desired: int = 1, status: Any = None, spec: Any = None, **rest: Any) -> View:
    """A training run of an own environment, with these environment pods."""
    status = {**(status or RUNNING), "environments": {"desired": desired, "ready": 0}}
    spec = {**OWN, "environmentReplicas": desired, **(spec or {})}
    return make_view(status, **{"pod": WORKING, "environments": pods, "spec": spec, **rest})


def failed(slot: int, incarnation: int, code: int = 1, seconds_ago: float = 30, said: str = "error: boom") -> Any:
    ended = terminated(code, said, at=format_time(NOW - timedelta(seconds=seconds_ago)))
    return make_environment(slot, incarnation, ended, phase="Failed" if code else "Succeeded")


def gone(reason: str, slot: int = 0, incarnation: int = 0) -> PodObservation:
    ended = terminated(137, at=format_time(NOW - timedelta(seconds=30)))
    if reason == "Evicted":
        return make_environment(slot, incarnation, ended, phase="Failed", reason=reason)
    disrupted = [disruption(reason)]
    return make_environment(slot, incarnation, ended, phase="Failed", conditions=disrupted)


def works(slot: int, incarnation: int = 0, attempt: int = 1) -> PodObservation:
    return make_environment(slot, incarnation, ready(), attempt=attempt)


PLANS: dict[str, tuple[View, list[tuple[int, int]], list[str]]] = {
    "the first ones": (apart(desired=2), [(0, 0), (1, 0)], []),
    "all of them work": (apart(works(0)), [], []),
    "not before the run's pod has an address": (apart(pod=make_pod(ready(), ready())), [], []),
    "not before there is the run's pod": (apart(pod=None), [], []),
    "a failed one is replaced and stays": (apart(failed(0, 0)), [(0, 1)], []),
    "but not at once": (apart(failed(0, 0, seconds_ago=5)), [], []),
    "and later each time": (apart(failed(0, 0, seconds_ago=100), failed(0, 1, seconds_ago=15)), [], []),
    "one that left in order is replaced when the trainer had its say": (
        apart(failed(0, 0, code=0, seconds_ago=IN_ORDER_SECONDS)),
        [(0, 1)],
        [],
    ),
    "and not before": (apart(failed(0, 0, code=0, seconds_ago=30)), [], []),
    "nor when all steps are trained": (
        apart(failed(0, 0, code=0, seconds_ago=IN_ORDER_SECONDS), trainer=TRAINED),
        [],
        [],
    ),
    "but one that failed is: the final weights are to be evaluated": (
        apart(failed(0, 0), trainer=TRAINED),
        [(0, 1)],
        [],
    ),
    "after a pause": (apart(failed(0, 0, seconds_ago=5), trainer=TRAINED), [], []),
    "and not after one that evaluated": (
        apart(failed(0, 0), failed(0, 1, code=0, seconds_ago=IN_ORDER_SECONDS), trainer=TRAINED),
        [],
        [],
    ),
    "nor any other: only the first one evaluates": (
        apart(works(0), failed(1, 0), desired=2, trainer=TRAINED),
        [],
        [],
    ),
    "an evicted one is replaced": (apart(gone("Evicted")), [(0, 1)], []),
    "and deleted when it was": (apart(gone("Evicted"), works(0, 1)), [], ["1-env-0-0"]),
    "a preempted one": (apart(gone("PreemptionByScheduler")), [(0, 1)], []),
    "one that somebody deletes": (apart(make_environment(0, 0, ready(), deleting=True)), [(0, 1)], []),
    "scaled up": (apart(works(0), desired=1, spec={"environmentReplicas": 3}), [(1, 0), (2, 0)], []),
    "scaled down": (apart(works(0), works(1), works(2), desired=1), [], ["1-env-1-0", "1-env-2-0"]),
    "those of the attempt before": (apart(works(0, attempt=0), works(0)), [], ["0-env-0-0"]),
    "more failures than are kept": (
        apart(works(0), *(failed(1, n, seconds_ago=900 - n) for n in range(KEPT_FAILURES + 2)), desired=2),
        [(1, KEPT_FAILURES + 2)],
        ["1-env-1-0", "1-env-1-1"],
    ),
    "a bundled one serves slot 0 inside": (
        apart(pod=WORKING_INSIDE, desired=1, spec={"environment": "sort_digits", "environmentReplicas": 2}),
        [(1, 0)],
        [],
    ),
    "stopping: left alone": (apart(works(0), pod=make_pod(ready(), running(), deleting=True)), [], []),
    "the trainer is done: left alone": (apart(failed(0, 0), pod=make_pod(ready(), terminated(0, result()))), [], []),
    "over: none stays running": (
        apart(works(0), failed(1, 0), pod=make_pod(terminated(0), terminated(0, result()), phase="Succeeded")),
        [],
        ["1-env-0-0"],
    ),
    "its only environment is inside": (make_view(RUNNING, pod=WORKING_INSIDE, spec={"environmentReplicas": 3}), [], []),
}


def short(pods: tuple[PodObservation, ...]) -> list[str]:
    return sorted(pod.name.split("-", 2)[2] for pod in pods)


@pytest.mark.parametrize(("view", "create", "delete"), PLANS.values(), ids=PLANS)
def test_plan(view: View, create: list[tuple[int, int]], delete: list[str]) -> None:
    plan = plan_environments(view)
    assert list(plan.create) == [Slot(*place) for place in create]
    assert short(plan.delete) == delete


def test_the_next_reconcile_is_when_the_replacement_is_due() -> None:
    view = apart(failed(0, 0, seconds_ago=4), spec={"progressDeadlineSeconds": None})
    assert requeue_after(view, assess(view)) == pytest.approx(6)


FOUR = tuple(failed(0, n, seconds_ago=40 - n, said=f"error: failure {n}") for n in range(4))
VERDICTS: dict[str, tuple[View, str | None]] = {
    "three failures": (apart(*FOUR[:3]), None),
    "four failures": (apart(*FOUR), "EnvironmentFailed"),
    "four failures and one that works": (apart(*FOUR, works(1), desired=2), None),
    "four failures and one that works inside": (
        apart(*FOUR, pod=WORKING_INSIDE, spec={"environment": "sort_digits"}),
        None,
    ),
    "the one inside failed, one apart works": (
        apart(
            works(1),
            pod=make_pod(ready(), ready(), terminated(1, "error: no such file")),
            spec={"environment": "sort_digits"},
        ),
        "EnvironmentFailed",
    ),
    "four evictions": (apart(*(gone("Evicted", 0, n) for n in range(4))), None),
    "bad configuration": (apart(failed(0, 0, code=2), works(1), desired=2), "ConfigInvalid"),
    "refused key": (apart(failed(0, 0, code=3)), "CredentialsRefused"),
    "left early four times": (apart(*(failed(0, n, code=0, seconds_ago=99) for n in range(4))), "EnvironmentLeftEarly"),
    "four failures after the last step": (apart(*FOUR, trainer=TRAINED), None),
    "four failures after an early stop": (apart(*FOUR, trainer=STOPPED_EARLY), None),
    "four failures, and the run's pod was evicted": (
        apart(*FOUR, pod=make_pod(ready(), terminated(0), phase="Failed", reason="Evicted")),
        None,
    ),
}


@pytest.mark.parametrize(("view", "reason"), VERDICTS.values(), ids=VERDICTS)
def test_verdict(view: View, reason: str | None) -> None:
    ending = verdict(view)
    assert (ending.reason if ending else None) == reason
    assert (assess(view).reason == ENVIRONMENTS_FAILED) is (reason is not None)


def test_the_verdict_is_recorded_before_the_pod_is_deleted() -> None:
    """Afterwards it could not be told whether an environment had worked until then."""
    view = apart(*FOUR)
    assessment = assess(view)
    assert (assessment.situation, decide(view)) == (Situation.STOPPING, Action.REST)
    assert "failure 3 (pod sorting-u1abc-1-env-0-3). Stopping: the trainer saves a checkpoint." in assessment.message
    recorded = {
        **STARTED,
        "phase": "Stopping",
        "conditions": [{**STARTED["conditions"][0], "reason": ENVIRONMENTS_FAILED}],
    }
    assert decide(apart(*FOUR, status=recorded)) is Action.STOP
    over = make_pod(ready(), terminated(0, result(outcome="stopped", stepsTrained=3)), phase="Failed", deleting=True)
    assessment = assess(apart(*FOUR, pod=over, status=recorded))
    assert (assessment.ending.reason, assessment.ending.exit_code) == ("EnvironmentFailed", 1)
    unrecorded = assess(apart(*FOUR, pod=over))
    assert unrecorded.ending.reason == "PodDeleted", "somebody else deleted it"


def test_a_trainer_without_environments_says_how_the_last_one_failed() -> None:
    lost = failed_result("environment", "no environment lived for 300 s")
    pod = make_pod(ready(), terminated(1, lost), phase="Failed")
    ending = assess(apart(failed(0, 0, seconds_ago=300, said="error: boom"), pod=pod)).ending
    assert (ending.reason, ending.message) == ("EnvironmentFailed", "boom (pod sorting-u1abc-1-env-0-0)")
    ending = assess(apart(gone("Evicted"), pod=pod)).ending
    assert (ending.fate.name, ending.reason) == ("INFRASTRUCTURE", "EnvironmentLost")


STARTING: dict[str, tuple[View, Situation, str, str]] = {
    "waiting for it": (apart(make_environment(0, 0, running())), Situation.STARTING, "PodStarting", "env-0-0"),
    "it works": (apart(works(0)), Situation.RUNNING, "Training", ""),
    "one of two works": (apart(works(0), make_environment(1, 0, waiting())), Situation.RUNNING, "Training", ""),
    "the one inside works": (
        apart(make_environment(1, 0, waiting()), pod=WORKING_INSIDE, spec={"environment": "sort_digits"}),
        Situation.RUNNING,
        "Training",
        "",
    ),
    "its image is missing": (
        apart(make_environment(0, 0, waiting("ImagePullBackOff", "no such image"))),
        Situation.STARTING,
        "ImageNotPulled",
        "sorting-u1abc-1-env-0-0",
    ),
    "no node takes it": (
        apart(make_environment(0, 0, waiting(), phase="Pending", conditions=[unscheduled("Unschedulable")])),
        Situation.STARTING,
        "Unschedulable",
        "No node takes pod sorting-u1abc-1-env-0-0",
    ),
    "it failed": (
        apart(failed(0, 0, seconds_ago=3)),
        Situation.STARTING,
        "EnvironmentFailing",
        "EnvironmentFailed (exit code 1): boom (pod sorting-u1abc-1-env-0-0). It is replaced (1 failed so far).",
    ),
}


@pytest.mark.parametrize(("view", "situation", "reason", "words"), STARTING.values(), ids=STARTING)
def test_a_run_runs_when_one_environment_works(view: View, situation: Situation, reason: str, words: str) -> None:
    status = {**STARTED, "environments": {"desired": 1, "ready": 0}}
    run = make_run(status, **view.run.spec.to_wire())
    assessment = assess(replace(view, run=run))
    assert (assessment.situation, assessment.reason) == (situation, reason)
    assert words in assessment.message


def test_a_running_run_says_what_is_wrong_with_its_environments() -> None:
    trainer = ObservedTrainer(step=3, total_steps=40)
    view = apart(works(0), failed(1, 0, seconds_ago=3), trainer=trainer, desired=2, spec={"environmentReplicas": 5})
    message = assess(replace(view, replica_limit=2)).message
    assert message.startswith("Training: step 3 of 40. EnvironmentFailed (exit code 1): boom")
    assert message.endswith("spec.environmentReplicas is 5, and 2 is the most that the runtime allows.")


COUNTS = {
    "asked": (3, None, None, 3),
    "limited": (9, 4, None, 4),
    "a limit that was lowered takes nothing away": (8, 2, 8, 8),
    "and lets nothing be added": (9, 2, 8, 8),
    "fewer are always possible": (1, 2, 8, 1),
}


@pytest.mark.parametrize(("asked", "limit", "in_force", "allowed"), COUNTS.values(), ids=COUNTS)
def test_the_number_of_replicas(asked: int, limit: int | None, in_force: int | None, allowed: int) -> None:
    status = {"environments": {"desired": in_force, "ready": 0}} if in_force else {}
    assert replicas(make_run(status, **OWN, environmentReplicas=asked), limit) == allowed


def test_ports_are_opened_or_not_at_the_start_of_an_attempt() -> None:
    assert at_start(make_run(), None) is None
    assert at_start(make_run(environmentReplicas=3), None) == EnvironmentPods(desired=2, ready=0)
    assert at_start(make_run(environmentReplicas=3), 1) is None
    assert at_start(make_run(**OWN), 1) == EnvironmentPods(desired=1, ready=0)


CONTAINERS = st.sampled_from(
    [ready(), running(), waiting(), terminated(0), terminated(1), terminated(2), terminated(137)]
)
PODS = st.builds(
    lambda slot, n, container, attempt, deleting, reason: make_environment(
        slot,
        n,
        container,
        attempt=attempt,
        deleting=deleting,
        phase="Failed" if "terminated" in container["state"] else "Running",
        **({"reason": reason} if reason else {}),
    ),
    st.integers(0, 4),
    st.integers(0, 6),
    CONTAINERS,
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from([None, "Evicted", "OutOfcpu"]),
)


@given(st.lists(PODS, max_size=12, unique_by=lambda pod: pod.name), st.integers(1, 4))
def test_the_plan_leads_to_the_wanted_pods_whatever_there_is(pods: list[PodObservation], wanted: int) -> None:
    """No name is taken twice, no slot filled twice; correct pods are left alone."""
    view = apart(*pods, desired=wanted, now=NOW + timedelta(hours=1))
    plan = plan_environments(view)
    names = {(pod.slot, pod.incarnation) for pod in pods if pod.attempt == 1}
    assert not {(place.slot, place.incarnation) for place in plan.create} & names
    left = [pod for pod in pods if pod not in plan.delete and not pod.over and not pod.deleting]
    filled = [pod.slot for pod in left] + [place.slot for place in plan.create]
    assert set(filled) == set(range(wanted))
    assert all(pod.attempt == 1 for pod in left)
    seen = observed(view)
    assert seen.failures <= len(pods)
