"""How an attempt ended, and who is at fault: that decides whether there is another one.

The trainer's result decides success; the pod's phase is never trusted (an evicted pod may report Succeeded).
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from rl_contract.processes import ExitCode
from rl_operator.api.names import (
    API_CONTAINER,
    BUDGET_REACHED,
    ENVIRONMENT_CONTAINER,
    OPENENV_CONTAINER,
    OUR_CONTAINERS,
    TRAINER_CONTAINER,
)
from rl_operator.status.observed.observation import (
    NEVER_RAN,
    OUT_OF_MEMORY,
    ContainerObservation,
    PodObservation,
    format_time,
)
from rl_operator.status.text.sentences import clean, meant

SIGNALED: Final = 128
"""Exit codes above this are signals."""


class Fate(Enum):
    """What follows from the end of an attempt."""

    SUCCEEDED = "the weights exist"
    STOPPED = "stopped as asked, or at its budget: resumable"
    INFRASTRUCTURE = "not the application's fault: tried again, not counted"
    APPLICATION = "the application's fault: tried again up to backoffLimit"
    FINAL = "trying again cannot help"


@dataclass(frozen=True, slots=True)
class Ending:
    fate: Fate
    reason: str
    container: str | None = None
    exit_code: int | None = None
    message: str = ""


BACKEND_UNREACHABLE: Final = "BackendUnreachable"

EXIT_CODES: Mapping[int, tuple[Fate, str]] = {
    ExitCode.BAD_CONFIG: (Fate.FINAL, "ConfigInvalid"),
    ExitCode.CREDENTIALS: (Fate.FINAL, "CredentialsRefused"),
    ExitCode.BACKEND_UNREACHABLE: (Fate.INFRASTRUCTURE, BACKEND_UNREACHABLE),
}
"""Those that mean more than `this container failed`."""

CONTAINER_FAILED: Mapping[str, str] = {
    API_CONTAINER: "ApiFailed",
    TRAINER_CONTAINER: "TrainerFailed",
    ENVIRONMENT_CONTAINER: "EnvironmentFailed",
}

DISRUPTIONS: Final = frozenset(
    {
        "PreemptionByScheduler",
        "EvictionByEvictionAPI",
        "DeletionByTaintManager",
        "DeletionByPodGC",
        "TerminationByKubelet",
        "StoppedByKueue",
        "SupervisorLost",
        "KubeletFailed",
    }
)
"""The reasons that Kubernetes, and local mode's supervisor, give for ending a pod."""

CHECKPOINT_LOST: Final = "CheckpointLost"
DIVERGED: Final = "Diverged"

FINAL_ERRORS: Final[Mapping[str, str]] = {"checkpoint": CHECKPOINT_LOST, "diverged": DIVERGED}
"""Classes of the trainer's error that have no exit code of their own, and that another attempt would only repeat."""

FORGOTTEN: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""The kubelet's reason for a container that it can no longer find, e.g. after a restart of the node."""


def classify(
    pod: PodObservation, *, stop_asked: bool, verdict: Ending | None = None, lost: Ending | None = None
) -> Ending:
    """Determine how a run's pod that is over ended.

    For environments in separate pods: `verdict` is set if they are why the pod was deleted; `lost` says how the last
    of them failed, in case the trainer is missing one.
    """
    if _succeeded(pod):
        return Ending(Fate.SUCCEEDED, "Succeeded")
    if stop_asked and pod.deleting:  # an attempt that ended before it was asked to has failed
        return Ending(Fate.STOPPED, "Stopped")
    if pod.lost:
        return verdict or _node_lost(pod)
    if pod.reason == "Evicted" or pod.disruption:
        return _disrupted(pod)
    if pod.reason == "DeadlineExceeded":
        words = clean(pod.message) or "The pod's own deadline has passed, which is the runtime's limit."
        return Ending(Fate.FINAL, "ActiveDeadlineExceeded", message=words)
    if pod.deleting and not _failed_by_itself(pod):
        return verdict or Ending(Fate.INFRASTRUCTURE, "PodDeleted", message="The pod was deleted by someone else.")
    return _blame(pod, lost)


def environment_ending(pod: PodObservation) -> Ending:
    container = pod.container(ENVIRONMENT_CONTAINER)
    if container is None or container.exit_code is None:
        return Ending(Fate.APPLICATION, CONTAINER_FAILED[ENVIRONMENT_CONTAINER], ENVIRONMENT_CONTAINER)
    ending = _environment_ending(container, "it ended before the run was over" if container.exit_code == 0 else "")
    words = "; ".join(part for part in (ending.message, server_failure(pod)) if part)
    return replace(ending, message=f"{words} (pod {pod.name})".strip())


def _succeeded(pod: PodObservation) -> bool:
    trainer, result = pod.container(TRAINER_CONTAINER), pod.result
    return (
        trainer is not None
        and trainer.exit_code == 0
        and result is not None
        and result.outcome == "succeeded"
        and (result.steps_trained == result.total_steps or result.stopped_early is not None)
        and result.sampler_path is not None
    )


def _node_lost(pod: PodObservation) -> Ending:
    due = format_time(pod.delete_by) if pod.delete_by else ""
    words = f"The pod was to be gone by {due}, and node {pod.node} says nothing of it."
    return Ending(Fate.INFRASTRUCTURE, "NodeLost", message=words)


def _disrupted(pod: PodObservation) -> Ending:
    word, message = pod.disruption or "", clean(pod.message)
    if pod.reason == "Evicted":
        return Ending(Fate.INFRASTRUCTURE, "Evicted", message=message)
    if word in DISRUPTIONS:
        return Ending(Fate.INFRASTRUCTURE, word, message=message)
    return Ending(Fate.INFRASTRUCTURE, "Disrupted", message=f"{word}: {message}".removesuffix(": "))


def _failed_by_itself(pod: PodObservation) -> bool:
    """The trainer failed by itself, not because of a deletion's signals."""
    trainer = pod.container(TRAINER_CONTAINER)
    if pod.result is not None and pod.result.outcome == "failed":
        return True
    if trainer is None or not trainer.exit_code:
        return False
    earlier = trainer.finished_at and pod.deleted_at and trainer.finished_at < pod.deleted_at
    return bool(earlier) or trainer.exit_code < SIGNALED or trainer.reason == OUT_OF_MEMORY


def _blame(pod: PodObservation, lost: Ending | None) -> Ending:
    """Find the container that failed first. The trainer's own report takes precedence over exit codes."""
    trainer, error = pod.container(TRAINER_CONTAINER), pod.result.error if pod.result else None
    if error and error.error_class == "silence" and not (lost or _ended_first(pod, trainer)):
        code = trainer.exit_code if trainer else None
        return Ending(Fate.INFRASTRUCTURE, "ProcessSilent", TRAINER_CONTAINER, code, clean(error.message))
    if error and error.error_class in ("environment", "silence"):
        return _blame_environment(pod, lost, clean(error.message))
    if error and error.error_class == "budget":
        return Ending(Fate.STOPPED, BUDGET_REACHED, message=clean(error.message))
    if error and error.error_class in FINAL_ERRORS:
        code = trainer.exit_code if trainer else None
        return Ending(Fate.FINAL, FINAL_ERRORS[error.error_class], TRAINER_CONTAINER, code, clean(error.message))
    if trainer and trainer.exit_code:
        said = meant(trainer.message) if pod.result is None else ""  # else it is the result, not a sentence
        ending = _failure_of(trainer, clean(error.message) if error else said)
        return replace(ending, reason="BillingRefused") if error and error.error_class == "billing" else ending
    failed = next((c for c in pod.containers if c.exit_code and c.name in OUR_CONTAINERS), None)
    if failed:
        return _failure_of(failed, meant(failed.message))
    if trainer is None or trainer.exit_code is None:
        words = (
            f"{pod.reason or 'The pod'}: {clean(pod.message)}" if pod.message else "It ended before its trainer ran."
        )
        return Ending(Fate.INFRASTRUCTURE, "PodRejected", message=words)
    return Ending(Fate.INFRASTRUCTURE, "UnexpectedExit", message="The pod ended in order before the training did.")


def _ended_first(pod: PodObservation, trainer: ContainerObservation | None) -> bool:
    """Whether the environment had failed when the trainer missed it: it was not only silent."""
    inside = pod.container(ENVIRONMENT_CONTAINER)
    if inside is None or not inside.exit_code:
        return False
    return not (trainer and trainer.finished_at and inside.finished_at) or inside.finished_at <= trainer.finished_at


def _blame_environment(pod: PodObservation, lost: Ending | None, said_by_trainer: str) -> Ending:
    inside = pod.container(ENVIRONMENT_CONTAINER)
    if inside and (inside.exit_code or not lost):
        return _environment_ending(inside, said_by_trainer)
    # None failed: they never started, or were evicted.
    return lost or Ending(Fate.INFRASTRUCTURE, "EnvironmentLost", message=said_by_trainer)


def _environment_ending(environment: ContainerObservation, said_by_trainer: str) -> Ending:
    if environment.exit_code:
        return _failure_of(environment, meant(environment.message) or _killed(environment) or said_by_trainer)
    return Ending(
        Fate.APPLICATION, "EnvironmentLeftEarly", ENVIRONMENT_CONTAINER, environment.exit_code, said_by_trainer
    )


def _failure_of(container: ContainerObservation, said: str) -> Ending:
    """What a container's exit code means, with what it said of it, or with what is known without that."""
    code = container.exit_code or 0
    if container.reason == OUT_OF_MEMORY:
        return Ending(Fate.APPLICATION, OUT_OF_MEMORY, container.name, code, _out_of_memory(container))
    if container.reason in FORGOTTEN:
        words = said or "The node lost track of it: it was restarted, or its container runtime was."
        return Ending(Fate.INFRASTRUCTURE, "ContainerLost", container.name, code, words)
    # An environment's own code may exit with any number.
    meant_so = container.name == TRAINER_CONTAINER or meant(container.message)
    known = EXIT_CODES.get(code) if meant_so else None
    fate, reason = known or (Fate.APPLICATION, CONTAINER_FAILED[container.name])
    return Ending(fate, reason, container.name, code, said or _killed(container) or _wordless(container))


def _out_of_memory(container: ContainerObservation) -> str:
    name, limit = container.name, container.memory_limit
    if limit is None:
        return f"the node ran out of memory: give spec.resources.{name} of the RLRuntime a request that is large enough"
    return (
        f"it needed more than its memory limit of {limit}: raise spec.resources.{name} of the RLRuntime, or make"
        " smaller groups or shorter answers"
    )


def _killed(container: ContainerObservation) -> str:
    """A killed container says nothing; 1 to 64 are signals on Linux."""
    number = (container.exit_code or 0) - SIGNALED
    return f"it was killed by {signal.Signals(number).name}" if number in set(signal.Signals) else ""


def _wordless(container: ContainerObservation) -> str:
    """It crashed before it could say why, or is not a program of ours; the container runtime may know more."""
    told = container.message if container.reason in NEVER_RAN else ""
    return clean(told) or "it did not say why: its log may"


ADVICE: Final = {
    "ImageNotPulled": "Push that image, or correct spec.openenv of the RLEnvironment and start a new run.",
    "ContainerNotCreated": "spec.openenv.command must name a program of the image; it runs as user 65533.",
    "ContainerCrashing": (
        "Its log says more: rlctl logs -c openenv, and on a cluster kubectl logs --previous -c openenv."
    ),
}
"""By the reason in our condition. The settings are the RLEnvironment's, and frozen: a run that started keeps them."""


def server_advice(reason: str, server: ContainerObservation) -> str | None:
    """None: what is said of any container holds for it, too."""
    if reason == "ContainerCrashing" and OUT_OF_MEMORY in server.ended_before:
        return "Raise spec.openenv.resources.limits.memory of the RLEnvironment and start a new run."
    if reason == "ContainerCrashing" and "Read-only file system" in server.ended_before:
        return "It may write to /tmp only, unless spec.openenv.readOnlyRootFilesystem is false."
    return ADVICE.get(reason)


def is_unanswered(pod: PodObservation) -> bool:
    """Whether its server runs and has not answered since: the environment starts after that."""
    server = pod.container(OPENENV_CONTAINER)
    return server is not None and server.state == "Running"


def server_failure(pod: PodObservation) -> str:
    """For an environment that failed: how its server failed before, or nothing."""
    server = pod.container(OPENENV_CONTAINER)
    return f"its OpenEnv server had ended before: {server.ended_before}" if server and server.ended_before else ""
