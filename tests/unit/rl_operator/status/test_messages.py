"""Status messages, reason by reason: every reason in the table is reached, in the situations it names."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from tests.unit.rl_operator.status.attempt.test_attempt_fate import ENDINGS
from tests.unit.rl_operator.status.attempt.test_deadlines import LATE
from tests.unit.rl_operator.status.builders import (
    NOW,
    RUNNING,
    STARTED,
    disruption,
    ended_pod,
    failed_result,
    make_environment,
    make_pod,
    make_sandbox,
    make_view,
    ready,
    running,
    terminated,
    waiting,
)
from tests.unit.rl_operator.status.test_phase_and_action import ROWS

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.refusal import Refusal, RefusalCode
from rl_operator.status.attempt.attempt_fate import DISRUPTIONS
from rl_operator.status.attempt.view import Assessment, QueuePosition, View
from rl_operator.status.derived_status import derive
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.phase_and_action import assess
from rl_operator.status.text.phase_table import Situation
from rl_operator.status.text.reasons import REASONS
from rl_operator.status.text.sentences import MAX_SENTENCE

GATED = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
NO_KEY = waiting("CreateContainerConfigError", 'secret "tinker" not found')
KEYS = {"env": [{"name": "TINKER_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tinker", "key": "api-key"}}}]}
LOST_ALL = terminated(1, failed_result("environment", "no environment is left"))
OWN = {"environment": "own/digits"}
APART = {**RUNNING, "environments": {"desired": 1, "ready": 0}}
STARTING_APART = {**STARTED, "environments": {"desired": 1, "ready": 0}}


def restored() -> View:
    view = make_view()
    marks = view.run.metadata.with_changes(annotations={STARTED_AS_ANNOTATION: "sorting.another-uid"})
    return View(view.run.with_changes(metadata=marks), NOW, 10.0)


def failed_environment(incarnation: int) -> PodObservation:
    return make_environment(0, incarnation, terminated(1, "error: boom"), phase="Failed")


def refused(code: Any) -> View:
    return make_view(refusals=(Refusal(code=code, field="spec.config.x", hint="do this"),))


OTHERS: dict[str, View] = {
    "catalog": make_view(pending=("CatalogPending", "Waiting for the catalog of runtime 'tiny': it is read.")),
    "own code": make_view(
        pending=("EnvironmentPending", "Waiting for RLEnvironment 'digits': it is going to be read.")
    ),
    "own code changed": make_view(STARTED, trouble=("EnvironmentPending", "Waiting for RLEnvironment 'digits'.")),
    "a name taken before the start": make_view(trouble=("NameTaken", "ConfigMap team-a/x is not this run's.")),
    "a quota": make_view(STARTED, trouble=("CreationRefused", "The API server refuses: exceeded quota.")),
    "in line": make_view(queue_position=QueuePosition(limit=2, active=2, before=2)),
    "gated": make_view(STARTED, pod=make_pod(waiting(), waiting(), phase="Pending", node="", spec=GATED)),
    "from a backup": restored(),
    "no Secret": make_view(
        STARTED, pod=make_pod(ready(), NO_KEY, ready(), spec={"containers": [{"name": "trainer", **KEYS}]})
    ),
    "not created": make_view(STARTED, pod=make_pod(waiting("CreateContainerError", "no such user"), waiting())),
    "an environment is replaced": make_view(
        STARTING_APART, pod=make_pod(ready(), running()), environments=(failed_environment(0),), spec=OWN
    ),
    "sandboxes that cannot start": make_view(
        STARTED,
        pod=make_pod(ready(), running()),
        sandboxes=(make_sandbox(0, 0, waiting("ErrImagePull", "no such tag"), phase="Pending"),),
        spec={"sandbox": {}},
    ),
    "environments given up": make_view(
        APART, pod=make_pod(ready(), ready()), environments=tuple(map(failed_environment, range(4))), spec=OWN
    ),
    "environments evicted": make_view(APART, pod=make_pod(ready(), LOST_ALL, phase="Failed"), spec=OWN),
    "another template": make_view(
        RUNNING, pod=make_pod(ready(), ready(), ready()), trouble=("TemplateChanged", "It is.")
    ),
    "another template before a start": make_view(STARTED, trouble=("TemplateChanged", "It is.")),
    "no ConfigMap any more": make_view(
        ROWS["backing off"][0].run.status.to_wire(), config_lost="ConfigMap team-a/x was deleted"
    ),
}


def disrupted(word: str) -> View:
    conditions = [disruption(word, "to make room")]
    return make_view(RUNNING, pod=make_pod(ready(), terminated(137), phase="Failed", conditions=conditions))


def views() -> Iterator[tuple[str, View]]:
    yield from ((f"row: {name}", row[0]) for name, row in ROWS.items())
    yield from ((f"late: {name}", row[0]) for name, row in LATE.items())
    yield from ((f"end: {name}", make_view(RUNNING, pod=row[0])) for name, row in ENDINGS.items())
    yield from ((f"refused: {code}", refused(code)) for code in sorted(get_args(RefusalCode)) if code != "FrozenField")
    yield from ((f"disrupted: {word}", disrupted(word)) for word in sorted(DISRUPTIONS))
    yield from ((f"other: {name}", view) for name, view in OTHERS.items())


VIEWS = dict(views())
FINDINGS: dict[str, Assessment] = {name: assess(view) for name, view in VIEWS.items()}


@pytest.mark.parametrize("name", VIEWS)
def test_messages_are_short_and_explained(name: str) -> None:
    assessment, status = FINDINGS[name], derive(VIEWS[name], FINDINGS[name])
    assert assessment.situation in REASONS[assessment.reason].where
    assert assessment.message[:1].isupper(), assessment.message
    assert "\n" not in assessment.message
    assert len(assessment.message.encode()) <= MAX_SENTENCE
    assert status.message == assessment.message
    for condition in status.conditions:
        assert assessment.situation in REASONS[condition.reason].where


@pytest.mark.parametrize("name", [name for name, assessment in FINDINGS.items() if assessment.ending])
def test_an_end_is_explained_and_in_the_record(name: str) -> None:
    assessment = FINDINGS[name]
    status = derive(VIEWS[name], assessment)
    assert status.attempts[-1].reason in REASONS
    assert assessment.ending.reason in REASONS
    if assessment.situation is Situation.WAITING and assessment.reason == "BackOff":
        assert assessment.message.startswith(assessment.ending.reason)
        assert "starts at" in assessment.message


def test_every_reason_of_the_table_is_reached() -> None:
    said = {assessment.reason for assessment in FINDINGS.values()}
    said |= {assessment.ending.reason for assessment in FINDINGS.values() if assessment.ending}
    told_by_events_only = {reason for reason, meaning in REASONS.items() if not meaning.where}
    assert set(REASONS) - said - told_by_events_only - {"Accepted"} == set()


def test_a_pod_that_never_ran_has_nothing_to_save() -> None:
    assert FINDINGS["late: start: no image"].message.endswith("Stopping: the pod is deleted.")
    assert FINDINGS["late: start"].message.endswith("Stopping: the trainer saves a checkpoint.")


LOST = terminated(1, failed_result("checkpoint", "the backend has neither the checkpoint after step 7 nor a newer one"))


@pytest.mark.parametrize(
    ("spec", "phase", "end"),
    [
        ({}, "Failed", "Start a new run; with spec.onLostCheckpoint: Restart it would train the lost steps again."),
        ({"onLostCheckpoint": "Restart"}, "Pending", "from what is left of its checkpoints."),
    ],
)
def test_a_lost_checkpoint_ends_the_run_unless_it_may_restart(spec: dict[str, Any], phase: str, end: str) -> None:
    view = make_view(RUNNING, pod=ended_pod(LOST), spec=spec)
    assessment = assess(view)
    status = derive(view, assessment)
    assert (status.phase, status.failure and status.failure.reason) == (phase, "CheckpointLost")
    assert assessment.message.startswith("CheckpointLost in trainer (exit code 1): the backend has neither")
    assert assessment.message.endswith(end)
