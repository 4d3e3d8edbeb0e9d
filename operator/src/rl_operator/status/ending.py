"""How an attempt ended, and whose fault it was: that decides whether there is another.

The trainer's result decides success; the pod's phase is never trusted (an evicted pod can say Succeeded).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.status.observation import ContainerObservation, PodObservation

MAX_MESSAGE = 300

SIGNALLED = 128
"""Exit codes above this are signals."""


class Fate(Enum):
    """What follows from the end of an attempt."""

    SUCCEEDED = "the weights exist"
    STOPPED = "stopped as asked: resumable"
    INFRASTRUCTURE = "not the programme's fault: tried again, not counted"
    PROGRAMME = "the programme's fault: tried again up to backoffLimit"
    FINAL = "trying again cannot help"


@dataclass(frozen=True, slots=True)
class Ending:
    fate: Fate
    reason: str
    container: str | None = None
    exit_code: int | None = None
    message: str = ""


EXIT_CODES: Mapping[int, tuple[Fate, str]] = {
    2: (Fate.FINAL, "ConfigInvalid"),
    3: (Fate.FINAL, "CredentialsRefused"),
    4: (Fate.INFRASTRUCTURE, "BackendUnreachable"),
}
"""The contract's exit codes that say more than `this container failed`."""

CONTAINER_FAILED: Mapping[str, str] = {
    API_CONTAINER: "ApiFailed",
    TRAINER_CONTAINER: "TrainerFailed",
    ENVIRONMENT_CONTAINER: "EnvironmentFailed",
}

_SECRETS = re.compile(r"\b(tml-|sk-|hf_)[A-Za-z0-9_\-]{6,}|\b[0-9a-f]{40}\b")


def classify(
    pod: PodObservation, *, stop_asked: bool, verdict: Ending | None = None, lost: Ending | None = None
) -> Ending:
    """Say how a run's pod that is over ended.

    Of the environments that run apart: `verdict` is set when they are why the pod was deleted, `lost` says how the
    last of them failed, should the trainer miss one.
    """
    if _succeeded(pod):
        return Ending(Fate.SUCCEEDED, "Succeeded")
    if stop_asked:
        return Ending(Fate.STOPPED, "Stopped")
    if pod.disruption or pod.reason == "Evicted":
        return Ending(Fate.INFRASTRUCTURE, pod.disruption or "Evicted", message=clean(pod.message))
    if pod.reason == "DeadlineExceeded":
        return Ending(Fate.FINAL, "ActiveDeadlineExceeded", message=clean(pod.message))
    if pod.deleting and not _failed_by_itself(pod):
        return verdict or Ending(Fate.INFRASTRUCTURE, "PodDeleted", message="The pod was deleted by someone else.")
    return _blame(pod, lost)


def environment_ending(pod: PodObservation) -> Ending:
    """How the environment of a pod of its own failed."""
    container = pod.container(ENVIRONMENT_CONTAINER)
    if container is None or container.exit_code is None:
        return Ending(Fate.PROGRAMME, CONTAINER_FAILED[ENVIRONMENT_CONTAINER], ENVIRONMENT_CONTAINER)
    ending = _environment_ending(container, "it ended before the run was over" if container.exit_code == 0 else "")
    return replace(ending, message=f"{ending.message} (pod {pod.name})".strip())


def clean(message: str) -> str:
    """The telling line of a termination message, secrets removed, cut to MAX_MESSAGE characters."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "")
    return _SECRETS.sub("[redacted]", telling.removeprefix("error:").strip())[:MAX_MESSAGE]


def _succeeded(pod: PodObservation) -> bool:
    trainer, result = pod.container(TRAINER_CONTAINER), pod.result
    return (
        trainer is not None
        and trainer.exit_code == 0
        and result is not None
        and result.outcome == "succeeded"
        and result.steps_trained == result.total_steps
        and result.sampler_path is not None
    )


def _failed_by_itself(pod: PodObservation) -> bool:
    """The trainer failed of its own accord, not by the signals of a deletion."""
    trainer = pod.container(TRAINER_CONTAINER)
    exited = trainer.exit_code if trainer else None
    return (pod.result is not None and pod.result.outcome == "failed") or (
        exited is not None and 0 < exited < SIGNALLED
    )


def _blame(pod: PodObservation, lost: Ending | None) -> Ending:
    """Find the container that failed first. The trainer's own word comes before exit codes."""
    trainer, error = pod.container(TRAINER_CONTAINER), pod.result.error if pod.result else None
    if error and error.error_class == "environment":
        return _blame_environment(pod, lost, clean(error.message))
    if trainer and trainer.exit_code:
        said = trainer.message if pod.result is None else ""  # else it is the result, and no sentence
        message = clean(error.message if error else said)
        fate, reason = _exit_meaning(trainer)
        if error and error.error_class == "billing":
            reason = "BillingRefused"
        return Ending(fate, reason, TRAINER_CONTAINER, trainer.exit_code, message)
    failed = next((c for c in pod.containers if c.exit_code), None)
    if failed:
        fate, reason = _exit_meaning(failed)
        return Ending(fate, reason, failed.name, failed.exit_code, clean(failed.message))
    return Ending(Fate.INFRASTRUCTURE, "StoppedUnasked", message="The pod ended in order before the training did.")


def _blame_environment(pod: PodObservation, lost: Ending | None, said_by_trainer: str) -> Ending:
    inside = pod.container(ENVIRONMENT_CONTAINER)
    if inside and (inside.exit_code or not lost):
        return _environment_ending(inside, said_by_trainer)
    # None failed: they were never started, or evicted.
    return lost or Ending(Fate.INFRASTRUCTURE, "EnvironmentLost", message=said_by_trainer)


def _environment_ending(environment: ContainerObservation, said_by_trainer: str) -> Ending:
    message = clean(environment.message) or said_by_trainer
    if environment.exit_code:
        fate, reason = _exit_meaning(environment)
        return Ending(fate, reason, ENVIRONMENT_CONTAINER, environment.exit_code, message)
    return Ending(Fate.PROGRAMME, "EnvironmentLeftEarly", ENVIRONMENT_CONTAINER, environment.exit_code, said_by_trainer)


def _exit_meaning(container: ContainerObservation) -> tuple[Fate, str]:
    if container.reason == "OOMKilled":
        return Fate.PROGRAMME, "OOMKilled"
    return EXIT_CODES.get(container.exit_code or 0, (Fate.PROGRAMME, CONTAINER_FAILED[container.name]))
