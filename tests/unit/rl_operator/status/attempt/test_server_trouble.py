"""What the OpenEnv server beside an environment does to its run, and what the run's message says about it."""

from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    RUNNING,
    STARTED,
    make_environment,
    make_pod,
    make_view,
    ready,
    running,
    terminated,
    waiting,
)

from rl_operator.status.attempt.attempt_fate import environment_ending
from rl_operator.status.attempt.view import Assessment
from rl_operator.status.lifecycle import assess
from rl_operator.status.observed.observation import PodObservation, TrainerStatus

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
    trainer = TrainerStatus(phase="training", step=3, total_steps=40)
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
