"""What the OpenEnv server beside an environment does to a run: why it does not start, and what to do about it."""

from typing import Final

from rl_operator.api.names import OPENENV_CONTAINER
from rl_operator.status.observed.container_observation import OUT_OF_MEMORY, ContainerObservation
from rl_operator.status.observed.observation import PodObservation

IMAGE_ADVICE: Final = "Push that image, or correct spec.openenv of the RLEnvironment and start a new run."
CREATION_ADVICE: Final = "spec.openenv.command must name a program of the image; it runs as user 65533."
LOG_ADVICE: Final = "Its log says more: rlctl logs -c openenv, and on a cluster kubectl logs --previous -c openenv."
MEMORY_ADVICE: Final = "Raise spec.openenv.resources.limits.memory of the RLEnvironment and start a new run."
READ_ONLY_ADVICE: Final = "It may write to /tmp only, unless spec.openenv.readOnlyRootFilesystem is false."

ADVICE: Final = {
    "ImageNotPulled": IMAGE_ADVICE,
    "ContainerNotCreated": CREATION_ADVICE,
    "ContainerCrashing": LOG_ADVICE,
}
"""By the reason in our condition. The settings are the RLEnvironment's, and frozen: a run that started keeps them."""


def server_advice(reason: str, server: ContainerObservation) -> str | None:
    """None: what is said of any container holds for it, too."""
    if reason == "ContainerCrashing" and OUT_OF_MEMORY in server.ended_before:
        return MEMORY_ADVICE
    if reason == "ContainerCrashing" and "Read-only file system" in server.ended_before:
        return READ_ONLY_ADVICE
    return ADVICE.get(reason)


def is_unanswered(pod: PodObservation) -> bool:
    """Whether its server runs and has not answered since: the environment starts after that."""
    server = pod.container(OPENENV_CONTAINER)
    return server is not None and server.state == "Running"


def server_failure(pod: PodObservation) -> str:
    """For an environment that failed: how its server failed before, or nothing."""
    server = pod.container(OPENENV_CONTAINER)
    return f"its OpenEnv server had ended before: {server.ended_before}" if server and server.ended_before else ""
