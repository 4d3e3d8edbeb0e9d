"""How an attempt ended: a table of pods as Kubernetes shows them, and what follows from each."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    RUNNING,
    STARTED,
    disruption,
    ended_pod,
    failed_result,
    make_environment,
    make_pod,
    make_view,
    ready,
    result,
    running,
    terminated,
    waiting,
    working_pod,
)

from rl_operator.status.attempt.attempt_fate import DISRUPTIONS, Ending, Fate, classify, environment_ending
from rl_operator.status.attempt.view import Assessment
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation
from rl_operator.status.phase_and_action import assess

LATER = "2026-05-01T12:01:00Z"
"""Ninety seconds after the containers' end."""

MISSED = terminated(1, failed_result("silence", "the environment fell silent"))
"""A trainer that has heard nothing of its environment."""

GONE = terminated(1, failed_result("environment", "it is gone"))
"""A trainer whose environment is."""

FATES = {
    "SUCCEEDED Succeeded": {
        "success": make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded"),
        "success although the environment hung and was killed": ended_pod(
            terminated(0, result()), terminated(137), deleting=True
        ),
        "success before the last step": make_pod(
            ready(), terminated(0, result(stepsTrained=39, stoppedEarly="it is good")), terminated(0)
        ),
    },
    "INFRASTRUCTURE UnexpectedExit": {
        "a trainer that says succeeded with steps missing did not succeed": make_pod(
            ready(), terminated(0, result(stepsTrained=39)), terminated(0), phase="Succeeded"
        ),
        "a trainer that says succeeded without weights did not succeed": make_pod(
            ready(), terminated(0, result(samplerPath=None)), terminated(0), phase="Succeeded"
        ),
    },
    "APPLICATION OOMKilled": {
        "killed for memory before its pod was taken away": ended_pod(
            terminated(137, reason="OOMKilled"),
            deleting=True,
            spec={"containers": [{"name": "trainer", "resources": {"limits": {"memory": "40Mi"}}}]},
        ),
        "trainer out of memory": ended_pod(terminated(137, result(outcome="running"), "OOMKilled")),
        "environment out of memory, silent to the trainer": ended_pod(MISSED, terminated(137, reason="OOMKilled")),
        "environment out of memory": ended_pod(GONE, terminated(137, reason="OOMKilled")),
    },
    "APPLICATION TrainerFailed": {
        "killed before its pod was taken away": ended_pod(terminated(139), deleting=True, delete_by=LATER, grace=60),
        "trainer crashed without a word": ended_pod(terminated(1, "Traceback")),
        "failed, and its lingering pod deleted by us": ended_pod(
            terminated(1, failed_result("internal", "bug")), terminated(137), deleting=True
        ),
    },
    "INFRASTRUCTURE PodDeleted": {
        "killed when its pod was taken away": ended_pod(terminated(137), deleting=True, delete_by=LATER, grace=120),
        "deleted by somebody": ended_pod(
            terminated(0, result(outcome="stopped", stepsTrained=7)), terminated(143), deleting=True
        ),
    },
    "APPLICATION EnvironmentFailed": {
        "an environment's own code exits with one of our numbers": ended_pod(GONE, terminated(3)),
        "environment raised": ended_pod(GONE, terminated(1, "error: boom")),
    },
    "FINAL ConfigInvalid": {
        "an environment's configuration is refused by our runner": ended_pod(
            GONE, terminated(2, "error: env.group_size is 'four'")
        ),
        "bad configuration": ended_pod(terminated(2, failed_result("config", "tinker.foo is not known"))),
        "environment with a bad config": ended_pod(GONE, terminated(2, "error: env.x")),
    },
    "FINAL CredentialsRefused": {"refused key": ended_pod(terminated(3, failed_result("credentials", "401")))},
    "FINAL BillingRefused": {"unpaid bill": ended_pod(terminated(3, failed_result("billing", "402")))},
    "FINAL CheckpointLost": {"lost checkpoint": ended_pod(terminated(1, failed_result("checkpoint", "it is gone")))},
    "FINAL Diverged": {"diverged": ended_pod(terminated(1, failed_result("diverged", "the loss is nan")))},
    "INFRASTRUCTURE BackendUnreachable": {
        "backend gone": ended_pod(terminated(4, failed_result("backend", "no answer")))
    },
    "APPLICATION EnvironmentLeftEarly": {
        "environment left early": ended_pod(terminated(1, failed_result("environment", "it left")))
    },
    "INFRASTRUCTURE ProcessSilent": {
        "the environment was silent, and ended when it was asked to": ended_pod(MISSED, terminated(0)),
        "the environment was frozen, and killed with its pod": ended_pod(
            MISSED, terminated(137, at="2026-05-01T13:00:00Z"), deleting=True
        ),
        "it had waited for a trainer that was silent": ended_pod(
            terminated(1, failed_result("silence", "the trainer is lost")), terminated(0)
        ),
    },
    "APPLICATION ApiFailed": {
        "api failed before the others started": make_pod(
            terminated(1, "error: no space"), waiting(), waiting(), phase="Failed"
        )
    },
    "INFRASTRUCTURE EvictionByEvictionAPI": {
        "evicted, although the pod says Succeeded": make_pod(
            ready(),
            terminated(0, result(outcome="stopped", stepsTrained=7)),
            terminated(0),
            phase="Succeeded",
            conditions=[disruption("EvictionByEvictionAPI")],
        )
    },
    "INFRASTRUCTURE Evicted": {"evicted by the kubelet": ended_pod(terminated(137), terminated(137), reason="Evicted")},
    "FINAL ActiveDeadlineExceeded": {
        "the pod's own deadline": ended_pod(terminated(137), terminated(137), reason="DeadlineExceeded")
    },
    "INFRASTRUCTURE PodRejected": {
        "rejected by its node": make_pod(
            waiting(), waiting(), waiting(), phase="Failed", reason="OutOfcpu", message="Pod was rejected: no cpu"
        ),
        "over before its trainer ran": ended_pod(waiting(), waiting()),
    },
    "INFRASTRUCTURE ContainerLost": {
        "the node was restarted": ended_pod(terminated(137, reason="ContainerStatusUnknown"), terminated(137)),
        "the container runtime forgot it": ended_pod(
            terminated(255, reason="Unknown"), terminated(255, reason="Unknown")
        ),
    },
    "INFRASTRUCTURE Disrupted": {
        "disrupted by something new": ended_pod(
            terminated(137), terminated(137), conditions=[disruption("SolarFlare", "hot")]
        )
    },
    "INFRASTRUCTURE NodeLost": {
        "its node is lost": replace(working_pod(deleting=True), lost=True),
        "its node is lost, and the cluster has marked it": replace(
            working_pod(deleting=True, conditions=[disruption("DeletionByTaintManager")]), lost=True
        ),
    },
}
ENDINGS = {name: (pod, *ending.split()) for ending, pods in FATES.items() for name, pod in pods.items()}


@pytest.mark.parametrize(("pod", "fate", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_ending(pod: PodObservation, fate: str, reason: str) -> None:
    ending = classify(pod, stop_asked=False)
    assert (ending.fate.name, ending.reason) == (fate, reason)


@pytest.mark.parametrize("word", sorted(DISRUPTIONS))
def test_the_clusters_reason_for_a_disruption_is_the_reason(word: str) -> None:
    conditions = [disruption(word, "to make room")]
    pod = ended_pod(terminated(137), terminated(137), conditions=conditions)
    assert classify(pod, stop_asked=False) == Ending(Fate.INFRASTRUCTURE, word, message="to make room")


def test_the_kubelets_eviction_says_what_was_short() -> None:
    words = "The node was low on resource: memory."
    conditions = [disruption("TerminationByKubelet")]
    pod = ended_pod(terminated(137), terminated(137), reason="Evicted", message=words, conditions=conditions)
    assert classify(pod, stop_asked=False) == Ending(Fate.INFRASTRUCTURE, "Evicted", message=words)


STOPS = {
    "asked": (ended_pod(terminated(137), terminated(137), deleting=True), Fate.STOPPED),
    "asked, and failed while it saved": (
        ended_pod(terminated(1, failed_result("internal", "bug")), deleting=True),
        Fate.STOPPED,
    ),
    "asked, and its node is lost": (replace(working_pod(deleting=True), lost=True), Fate.STOPPED),
    "asked, and done before": (
        make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded", deleting=True),
        Fate.SUCCEEDED,
    ),
    "failed before it was asked": (ended_pod(terminated(1, failed_result("internal", "bug"))), Fate.APPLICATION),
    "refused for good before it was asked": (ended_pod(terminated(3, failed_result("credentials", "401"))), Fate.FINAL),
}


@pytest.mark.parametrize(("pod", "fate"), STOPS.values(), ids=STOPS)
def test_a_stop_counts_only_if_it_was_requested(pod: PodObservation, fate: Fate) -> None:
    assert classify(pod, stop_asked=True).fate is fate


LIMITS = {
    "containers": [
        {"name": "trainer", "resources": {"limits": {"memory": "2Gi"}}},
        {"name": "environment", "resources": {"limits": {"cpu": "1"}}},
    ]
}


def test_out_of_memory_names_the_container_and_its_limit() -> None:
    killed = terminated(137, result(outcome="running"), "OOMKilled")
    ending = classify(ended_pod(killed, spec=LIMITS), stop_asked=False)
    assert (ending.reason, ending.container, ending.exit_code) == ("OOMKilled", "trainer", 137)
    assert ending.message.startswith("it needed more than its memory limit of 2Gi: raise spec.resources.trainer of")


def test_out_of_memory_without_a_limit_is_blamed_on_the_node() -> None:
    gone = GONE
    pod = ended_pod(gone, terminated(137, reason="OOMKilled"), spec=LIMITS)
    ending = classify(pod, stop_asked=False)
    assert ending.container == "environment"
    assert ending.message.startswith("the node ran out of memory: give spec.resources.environment")


def test_a_killed_container_without_a_result_names_the_signal() -> None:
    pod = ended_pod(terminated(137, result(outcome="running")))
    assert classify(pod, stop_asked=False).message == "it was killed by SIGKILL"


def test_the_environments_error_comes_before_the_trainers() -> None:
    pod = ended_pod(
        terminated(1, failed_result("environment", "the environment is gone")),
        terminated(1, "a log line\nerror: ZeroDivisionError in score\n"),
    )
    ending = classify(pod, stop_asked=False)
    assert (ending.container, ending.exit_code) == ("environment", 1)
    assert ending.message == "ZeroDivisionError in score"


POD = "sorting-u1abc-1-env-0-0"
SPEC = {"environment": "own/digits"}
APART = {"environments": {"desired": 1, "ready": 0}}


def pod_with(server: dict[str, Any], environment: dict[str, Any] | None = None, **fields: Any) -> PodObservation:
    status = {"name": "openenv", **server}
    return make_environment(0, 0, environment or waiting(), initContainerStatuses=[status], **fields)


def starting(server: dict[str, Any]) -> Assessment:
    pod = make_pod(ready(), ready())
    return assess(make_view(STARTED | APART, pod=pod, environments=(pod_with(server, None),), spec=SPEC))


def ended_before(reason: str, code: int, message: str = "", *, now: dict[str, Any] | None = None) -> dict[str, Any]:
    before = {"terminated": {"reason": reason, "exitCode": code, "message": message}}
    return {**(now or waiting("CrashLoopBackOff", "back-off 20s")), "lastState": before, "restartCount": 2}


TRACEBACK = """Traceback (most recent call last):
  File "/app/server.py", line 3, in <module>
    open("/app/cache", "w")
OSError: [Errno 30] Read-only file system: '/app/cache'
"""
TROUBLES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "its image": (
        waiting("ImagePullBackOff", "Back-off pulling image echo:1"),
        "ImageNotPulled",
        f"Container openenv of pod {POD} cannot start (ImagePullBackOff): Back-off pulling image echo:1.",
        "correct spec.openenv of the RLEnvironment and start a new run.",
    ),
    "its program": (
        ended_before("StartError", 128, 'exec: "/nowhere": no such file or directory'),
        "ContainerCrashing",
        'keeps ending: StartError, exit code 128: exec: "/nowhere": no such file or directory.',
        "rlctl logs -c openenv",
    ),
    "its container": (
        waiting("CreateContainerError", "bad"),
        "ContainerNotCreated",
        "cannot start (CreateContainerError): bad.",
        "spec.openenv.command must name a program of the image",
    ),
    "it writes elsewhere": (
        ended_before("Error", 1, TRACEBACK),
        "ContainerCrashing",
        "OSError: [Errno 30] Read-only file system: '/app/cache'.",
        "unless spec.openenv.readOnlyRootFilesystem is false.",
    ),
    "it needs memory": (
        ended_before("OOMKilled", 137),
        "ContainerCrashing",
        "keeps ending: OOMKilled, exit code 137.",
        "Raise spec.openenv.resources.limits.memory of the RLEnvironment and start a new run.",
    ),
    "it is silent": (
        running(),
        "PodStarting",
        f"Waiting for environment pod {POD}, whose OpenEnv server has not answered GET /health yet.",
        "yet.",
    ),
}


@pytest.mark.parametrize(("server", "reason", "words", "advice"), TROUBLES.values(), ids=TROUBLES)
def test_a_run_that_starts_says_what_keeps_its_server(
    server: dict[str, Any], reason: str, words: str, advice: str
) -> None:
    found = starting(server)
    assert found.reason == reason
    assert words in found.message
    assert found.message.endswith(advice) or advice in found.message
    assert len(found.message) <= 512


def test_a_server_that_has_started_is_not_waited_for() -> None:
    assert starting(ready()).message == f"Waiting for environment pod {POD}."


def test_a_run_that_trains_says_when_its_server_ends() -> None:
    trainer = ObservedTrainer(phase="training", step=3, total_steps=40)
    pod = pod_with(ended_before("Error", 3), ready())
    view = make_view(RUNNING | APART, pod=make_pod(ready(), ready()), environments=(pod,), spec=SPEC, trainer=trainer)
    message = assess(view).message
    assert message.startswith("Training: step 3 of 40. Container openenv of pod")
    assert "keeps ending: Error, exit code 3. Its log says more" in message


def test_an_environment_that_failed_names_the_end_of_its_server() -> None:
    failed = terminated(1, "error: every rollout failed")
    pod = pod_with(ended_before("OOMKilled", 137, now=terminated(143)), failed, phase="Failed")
    ending = environment_ending(pod)
    said = "every rollout failed; its OpenEnv server had ended before: OOMKilled, exit code 137"
    assert (ending.container, ending.message) == ("environment", f"{said} (pod {POD})")


def test_a_server_that_ended_with_its_pod_is_not_to_blame() -> None:
    pod = pod_with(terminated(143), terminated(1, "error: boom"), phase="Failed")
    assert environment_ending(pod).message == f"boom (pod {POD})"
