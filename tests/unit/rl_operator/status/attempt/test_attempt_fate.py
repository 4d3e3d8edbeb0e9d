"""How an attempt ended: a table of pods as Kubernetes shows them, and what follows from each."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    RUNNING,
    STARTED,
    failed_result,
    make_environment,
    make_pod,
    make_view,
    ready,
    result,
    running,
    terminated,
    waiting,
)

from rl_operator.status.attempt.attempt_fate import DISRUPTIONS, Ending, Fate, classify, environment_ending
from rl_operator.status.attempt.view import Assessment
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation
from rl_operator.status.phase_and_action import assess

LATER = "2026-05-01T12:01:00Z"
"""Ninety seconds after the containers' end."""

ENDINGS = {
    "success": (
        make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded"),
        "SUCCEEDED",
        "Succeeded",
    ),
    "success although the environment hung and was killed": (
        make_pod(ready(), terminated(0, result()), terminated(137), phase="Failed", deleting=True),
        "SUCCEEDED",
        "Succeeded",
    ),
    "success before the last step": (
        make_pod(ready(), terminated(0, result(stepsTrained=39, stoppedEarly="it is good")), terminated(0)),
        "SUCCEEDED",
        "Succeeded",
    ),
    "a trainer that says succeeded with steps missing did not succeed": (
        make_pod(ready(), terminated(0, result(stepsTrained=39)), terminated(0), phase="Succeeded"),
        "INFRASTRUCTURE",
        "UnexpectedExit",
    ),
    "a trainer that says succeeded without weights did not succeed": (
        make_pod(ready(), terminated(0, result(samplerPath=None)), terminated(0), phase="Succeeded"),
        "INFRASTRUCTURE",
        "UnexpectedExit",
    ),
    "killed for memory before its pod was taken away": (
        make_pod(
            ready(),
            terminated(137, reason="OOMKilled"),
            terminated(0),
            phase="Failed",
            deleting=True,
            spec={"containers": [{"name": "trainer", "resources": {"limits": {"memory": "40Mi"}}}]},
        ),
        "APPLICATION",
        "OOMKilled",
    ),
    "killed before its pod was taken away": (
        make_pod(ready(), terminated(139), terminated(0), phase="Failed", deleting=True, delete_by=LATER, grace=60),
        "APPLICATION",
        "TrainerFailed",
    ),
    "killed when its pod was taken away": (
        make_pod(ready(), terminated(137), terminated(0), phase="Failed", deleting=True, delete_by=LATER, grace=120),
        "INFRASTRUCTURE",
        "PodDeleted",
    ),
    "an environment's own code exits with one of our numbers": (
        make_pod(ready(), terminated(1, failed_result("environment", "it is gone")), terminated(3), phase="Failed"),
        "APPLICATION",
        "EnvironmentFailed",
    ),
    "an environment's configuration is refused by our runner": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(2, "error: env.group_size is 'four'"),
            phase="Failed",
        ),
        "FINAL",
        "ConfigInvalid",
    ),
    "bad configuration": (
        make_pod(
            ready(), terminated(2, failed_result("config", "tinker.foo is not known")), terminated(0), phase="Failed"
        ),
        "FINAL",
        "ConfigInvalid",
    ),
    "refused key": (
        make_pod(ready(), terminated(3, failed_result("credentials", "401")), terminated(0), phase="Failed"),
        "FINAL",
        "CredentialsRefused",
    ),
    "unpaid bill": (
        make_pod(ready(), terminated(3, failed_result("billing", "402")), terminated(0), phase="Failed"),
        "FINAL",
        "BillingRefused",
    ),
    "lost checkpoint": (
        make_pod(ready(), terminated(1, failed_result("checkpoint", "it is gone")), terminated(0), phase="Failed"),
        "FINAL",
        "CheckpointLost",
    ),
    "diverged": (
        make_pod(ready(), terminated(1, failed_result("diverged", "the loss is nan")), terminated(0), phase="Failed"),
        "FINAL",
        "Diverged",
    ),
    "backend gone": (
        make_pod(ready(), terminated(4, failed_result("backend", "no answer")), terminated(0), phase="Failed"),
        "INFRASTRUCTURE",
        "BackendUnreachable",
    ),
    "trainer crashed without a word": (
        make_pod(ready(), terminated(1, "Traceback"), terminated(0), phase="Failed"),
        "APPLICATION",
        "TrainerFailed",
    ),
    "trainer out of memory": (
        make_pod(ready(), terminated(137, result(outcome="running"), "OOMKilled"), terminated(0), phase="Failed"),
        "APPLICATION",
        "OOMKilled",
    ),
    "environment raised": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(1, "error: boom"),
            phase="Failed",
        ),
        "APPLICATION",
        "EnvironmentFailed",
    ),
    "environment out of memory": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(137, reason="OOMKilled"),
            phase="Failed",
        ),
        "APPLICATION",
        "OOMKilled",
    ),
    "environment left early": (
        make_pod(ready(), terminated(1, failed_result("environment", "it left")), terminated(0), phase="Failed"),
        "APPLICATION",
        "EnvironmentLeftEarly",
    ),
    "environment with a bad config": (
        make_pod(
            ready(),
            terminated(1, failed_result("environment", "it is gone")),
            terminated(2, "error: env.x"),
            phase="Failed",
        ),
        "FINAL",
        "ConfigInvalid",
    ),
    "api failed before the others started": (
        make_pod(terminated(1, "error: no space"), waiting(), waiting(), phase="Failed"),
        "APPLICATION",
        "ApiFailed",
    ),
    "evicted, although the pod says Succeeded": (
        make_pod(
            ready(),
            terminated(0, result(outcome="stopped", stepsTrained=7)),
            terminated(0),
            phase="Succeeded",
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
        ),
        "INFRASTRUCTURE",
        "EvictionByEvictionAPI",
    ),
    "evicted by the kubelet": (
        make_pod(ready(), terminated(137), terminated(137), phase="Failed", reason="Evicted"),
        "INFRASTRUCTURE",
        "Evicted",
    ),
    "the pod's own deadline": (
        make_pod(ready(), terminated(137), terminated(137), phase="Failed", reason="DeadlineExceeded"),
        "FINAL",
        "ActiveDeadlineExceeded",
    ),
    "rejected by its node": (
        make_pod(
            waiting(), waiting(), waiting(), phase="Failed", reason="OutOfcpu", message="Pod was rejected: no cpu"
        ),
        "INFRASTRUCTURE",
        "PodRejected",
    ),
    "over before its trainer ran": (
        make_pod(ready(), waiting(), waiting(), phase="Failed"),
        "INFRASTRUCTURE",
        "PodRejected",
    ),
    "the node was restarted": (
        make_pod(ready(), terminated(137, reason="ContainerStatusUnknown"), terminated(137), phase="Failed"),
        "INFRASTRUCTURE",
        "ContainerLost",
    ),
    "the container runtime forgot it": (
        make_pod(ready(), terminated(255, reason="Unknown"), terminated(255, reason="Unknown"), phase="Failed"),
        "INFRASTRUCTURE",
        "ContainerLost",
    ),
    "disrupted by something new": (
        make_pod(
            ready(),
            terminated(137),
            terminated(137),
            phase="Failed",
            conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "SolarFlare", "message": "hot"}],
        ),
        "INFRASTRUCTURE",
        "Disrupted",
    ),
    "its node is lost": (
        replace(make_pod(ready(), ready(), ready(), deleting=True), lost=True),
        "INFRASTRUCTURE",
        "NodeLost",
    ),
    "its node is lost, and the cluster has marked it": (
        replace(
            make_pod(
                ready(),
                ready(),
                ready(),
                deleting=True,
                conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}],
            ),
            lost=True,
        ),
        "INFRASTRUCTURE",
        "NodeLost",
    ),
    "deleted by somebody": (
        make_pod(
            ready(),
            terminated(0, result(outcome="stopped", stepsTrained=7)),
            terminated(143),
            phase="Failed",
            deleting=True,
        ),
        "INFRASTRUCTURE",
        "PodDeleted",
    ),
    "failed, and its lingering pod deleted by us": (
        make_pod(
            ready(), terminated(1, failed_result("internal", "bug")), terminated(137), phase="Failed", deleting=True
        ),
        "APPLICATION",
        "TrainerFailed",
    ),
}


@pytest.mark.parametrize(("pod", "fate", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_ending(pod: PodObservation, fate: str, reason: str) -> None:
    ending = classify(pod, stop_asked=False)
    assert (ending.fate.name, ending.reason) == (fate, reason)


@pytest.mark.parametrize("word", sorted(DISRUPTIONS))
def test_the_clusters_reason_for_a_disruption_is_the_reason(word: str) -> None:
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": word, "message": "to make room"}]
    pod = make_pod(ready(), terminated(137), terminated(137), phase="Failed", conditions=conditions)
    assert classify(pod, stop_asked=False) == Ending(Fate.INFRASTRUCTURE, word, message="to make room")


def test_the_kubelets_eviction_says_what_was_short() -> None:
    words = "The node was low on resource: memory."
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    pod = make_pod(
        ready(),
        terminated(137),
        terminated(137),
        phase="Failed",
        reason="Evicted",
        message=words,
        conditions=conditions,
    )
    assert classify(pod, stop_asked=False) == Ending(Fate.INFRASTRUCTURE, "Evicted", message=words)


STOPS = {
    "asked": (make_pod(ready(), terminated(137), terminated(137), phase="Failed", deleting=True), Fate.STOPPED),
    "asked, and failed while it saved": (
        make_pod(
            ready(), terminated(1, failed_result("internal", "bug")), terminated(0), phase="Failed", deleting=True
        ),
        Fate.STOPPED,
    ),
    "asked, and its node is lost": (
        replace(make_pod(ready(), ready(), ready(), deleting=True), lost=True),
        Fate.STOPPED,
    ),
    "asked, and done before": (
        make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded", deleting=True),
        Fate.SUCCEEDED,
    ),
    "failed before it was asked": (
        make_pod(ready(), terminated(1, failed_result("internal", "bug")), terminated(0), phase="Failed"),
        Fate.APPLICATION,
    ),
    "refused for good before it was asked": (
        make_pod(ready(), terminated(3, failed_result("credentials", "401")), terminated(0), phase="Failed"),
        Fate.FINAL,
    ),
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
    ending = classify(make_pod(ready(), killed, terminated(0), phase="Failed", spec=LIMITS), stop_asked=False)
    assert (ending.reason, ending.container, ending.exit_code) == ("OOMKilled", "trainer", 137)
    assert ending.message.startswith("it needed more than its memory limit of 2Gi: raise spec.resources.trainer of")


def test_out_of_memory_without_a_limit_is_blamed_on_the_node() -> None:
    gone = terminated(1, failed_result("environment", "it is gone"))
    pod = make_pod(ready(), gone, terminated(137, reason="OOMKilled"), phase="Failed", spec=LIMITS)
    ending = classify(pod, stop_asked=False)
    assert ending.container == "environment"
    assert ending.message.startswith("the node ran out of memory: give spec.resources.environment")


def test_a_killed_container_without_a_result_names_the_signal() -> None:
    pod = make_pod(ready(), terminated(137, result(outcome="running")), terminated(0), phase="Failed")
    assert classify(pod, stop_asked=False).message == "it was killed by SIGKILL"


def test_the_environments_error_comes_before_the_trainers() -> None:
    pod = make_pod(
        ready(),
        terminated(1, failed_result("environment", "the environment is gone")),
        terminated(1, "a log line\nerror: ZeroDivisionError in score\n"),
        phase="Failed",
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
