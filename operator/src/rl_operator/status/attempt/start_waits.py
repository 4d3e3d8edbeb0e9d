"""What a run that is starting waits for.

Missing Secrets are named with what to do. The operator may not read Secrets: the kubelet's messages name them.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from rl_contract.processes import TRAINER_PORT
from rl_operator.api.names import ENVIRONMENT_CONTAINER, OPENENV_CONTAINER, OUR_CONTAINERS, TRAINER_CONTAINER
from rl_operator.status.attempt.attempt_fate import is_unanswered, server_advice
from rl_operator.status.attempt.environment_slots import replacement_sentence
from rl_operator.status.attempt.run_admission import gated_detail
from rl_operator.status.attempt.sandbox_slots import failed_sandbox, observed_sandboxes
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import (
    CONFIG_MISSING,
    CRASHING,
    ContainerObservation,
    PodObservation,
    format_time,
)
from rl_operator.status.text.sentences import clean, joined

CRASHES: Final = "ContainerCrashing"

WAITING_TROUBLES: Final[Mapping[str, str]] = {
    "ErrImagePull": "ImageNotPulled",
    "ImagePullBackOff": "ImageNotPulled",
    "ErrImageNeverPull": "ImageNotPulled",
    "InvalidImageName": "ImageNotPulled",
    CONFIG_MISSING: "ContainerConfigMissing",
    "CreateContainerError": "ContainerNotCreated",
    "RunContainerError": "ContainerNotCreated",
    CRASHING: CRASHES,
}
"""What a container waits for that will not resolve by itself -> the reason in our condition."""

ADVICE: Final[Mapping[str, str]] = {
    "ImageNotPulled": "Push that image or fix its registry's Secret: the kubelet tries again.",
    "ContainerConfigMissing": "It starts when that is there.",
    "ContainerNotCreated": "The image, or the RLRuntime's settings, do not fit the node.",
    CRASHES: "Its log says more: rlctl logs, and on a cluster kubectl logs --previous.",
    "Unschedulable": "It starts when a node has room for it.",
}

UNHEARD: Final = (
    f"The trainer runs, and has not answered the operator at its port {TRAINER_PORT} yet: its log says "
    "what it waits for. Where a NetworkPolicy of the namespace denies everything, let the operator in, and the trainer "
    "out to DNS and its backend."
)

UNBOUND: Final = "It starts when its PersistentVolumeClaim is bound: kubectl get pvc says what that waits for."
_UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_NO_CLAIM: Final = re.compile(r'persistentvolumeclaim "(?P<claim>[^"]+)" not found')
"""The scheduler's words (pkg/scheduler/framework/plugins/volumebinding)."""

PREPARATION: Final = timedelta(seconds=60)
"""A node takes seconds to mount volumes and to set up a pod's network; a longer wait is worth reporting."""


def starting_detail(view: View) -> tuple[str, str]:
    """Reason and sentence of a run that is starting: what it waits for. Everything that resolves by itself has the same
    reason, so that a normal start costs no write of its own.
    """
    if gated := gated_detail(view):
        return gated
    if view.trouble:
        return view.trouble
    pod = view.pod
    if pod is None:
        return "PodStarting", f"Creating pod {view.run.status.pod_name}."
    trouble = _trouble(pod, view.now) or environment_trouble(view)
    if sentence := replacement_sentence(view):  # why it is replaced comes before what its replacement waits for
        return "EnvironmentFailing", joined(sentence, trouble[1] if trouble else "")
    if trouble:
        return trouble
    if ended := ended_sentence(pod):
        return "PodStarting", ended
    if sentence := sandbox_sentence(view):
        return "SandboxFailing", sentence
    waiting = [c.name for c in pod.containers if c.state != "Ready"]
    apart = [f"environment pod {each.name}{_what_of(each)}" for each in view.living(view.environments)]
    waits = f"Waiting for {', '.join([*waiting, *apart]) or 'the kubelet'}."
    if view.unheard or view.unreachable:
        return "TrainerUnheard", joined(waits, UNHEARD)
    if view.pause:
        return view.pause.cause, joined(view.pause.sentence, waits)
    said = view.trainer.waiting or "" if view.trainer else ""
    silent = view.trainer is not None and view.trainer.backend_silent
    return "BackendSilent" if silent else "PodStarting", joined(waits, said)


def _what_of(pod: PodObservation) -> str:
    return ", whose OpenEnv server has not answered GET /health yet" if is_unanswered(pod) else ""


def ended_sentence(pod: PodObservation) -> str:
    """For a pod that is not over though a container has ended that is not started again; empty if none has."""
    ended = [
        c for c in pod.containers if c.state == "Terminated" and c.name in (TRAINER_CONTAINER, ENVIRONMENT_CONTAINER)
    ]
    if failed := next((c for c in ended if c.exit_code), None):
        how = f"{failed.reason}, exit code {failed.exit_code}"
        return f"Container {failed.name} has failed ({how}): waiting for the pod's other containers to end."
    if any(c.name == TRAINER_CONTAINER for c in ended):
        return "The trainer is done: waiting for the pod's other containers to end."
    return "The environment is done: waiting for the trainer to end." if ended else ""


def environment_trouble(view: View) -> tuple[str, str] | None:
    """What the first of the environment pods waits for that will not resolve by itself."""
    return next((trouble for pod in view.living(view.environments) if (trouble := _trouble(pod, view.now))), None)


def sandbox_sentence(view: View) -> str:
    """What sandboxes wait for that will not resolve by itself; empty while any of them works."""
    asked, there = view.run.spec.sandbox, observed_sandboxes(view)
    if asked is None or there is None or there.ready:
        return ""
    trouble = next((trouble for pod in view.living(view.sandboxes) if (trouble := _trouble(pod, view.now))), None)
    failed = None if trouble else failed_sandbox(view)
    why = trouble[1] if trouble else failed
    return f"None of {asked.size} sandboxes is ready: {why}" if why else ""


def prepared_by(pod: PodObservation) -> datetime | None:
    """When its node should have prepared the pod; None: it is prepared, or not on a node yet."""
    return pod.unprepared_since + PREPARATION if pod.unprepared_since else None


def _trouble(pod: PodObservation, now: datetime) -> tuple[str, str] | None:
    """What a pod waits for that will not resolve by itself."""
    if missing := missing_secrets(pod):
        return "SecretMissing", missing
    for container in pod.containers:
        reason = CRASHES if container.ended_before else WAITING_TROUBLES.get(container.reason or "")
        if reason:
            return reason, joined(_trouble_sentence(container, pod), _advice(reason, container))
    if missing := missing_claim(pod):
        return "ClaimMissing", missing
    if pod.reason == "Unschedulable":
        words = f"No node takes pod {pod.name}: {clean(pod.message) or _describe(pod)}"
        return "Unschedulable", joined(words, UNBOUND if _UNBOUND in pod.message else ADVICE["Unschedulable"])
    late = prepared_by(pod)
    return ("PodNotPrepared", _unprepared_sentence(pod)) if late and late <= now else None


def _advice(reason: str, container: ContainerObservation) -> str:
    found = server_advice(reason, container) if container.name == OPENENV_CONTAINER else None
    return found or ADVICE[reason]


def _trouble_sentence(container: ContainerObservation, pod: PodObservation) -> str:
    if container.ended_before:  # also while it runs again, and may fail again
        return f"Container {container.name} of pod {pod.name} keeps ending: {clean(container.ended_before)}"
    said = clean(container.message) or _describe(pod)
    whose = "" if container.name in OUR_CONTAINERS else ", which is not one of the run's own,"
    return f"Container {container.name} of pod {pod.name}{whose} cannot start ({container.reason}): {said}"


def missing_claim(pod: PodObservation) -> str | None:
    """The PersistentVolumeClaim that the pod waits for and that does not exist, in a sentence; None: for no claim."""
    found = _NO_CLAIM.search(pod.message) if pod.reason == "Unschedulable" else None
    if found is None:
        return None
    claim = f"PersistentVolumeClaim {pod.namespace}/{found['claim']}"
    return (
        f"{claim}, in which the runtime keeps rollouts, does not exist: create it, and the run starts; or have "
        "spec.rollouts of the RLRuntime changed, and start a new run."
    )


def _unprepared_sentence(pod: PodObservation) -> str:
    """The kubelet gives the reason only in events: what can be known without them."""
    since = format_time(pod.unprepared_since) if pod.unprepared_since else ""
    volumes = f"mounted its volumes ({', '.join(pod.mounts)})" if pod.mounts else "mounted its volumes"
    return f"Since {since} node {pod.node} has not {volumes} or given pod {pod.name} a network: {_describe(pod)}"


def _describe(pod: PodObservation) -> str:
    return f"kubectl -n {pod.namespace} describe pod {pod.name} says why."


_NO_SECRET: Final = re.compile(r'secret "(?P<secret>[^"]+)" not found')
_NO_KEY: Final = re.compile(r"couldn't find key (?P<key>\S+) in Secret [^/\s]+/(?P<secret>\S+)")
"""The kubelet's message for a container that waits with CreateContainerConfigError (pkg/kubelet/kubelet_pods.go)."""


def missing_secrets(pod: PodObservation) -> str | None:
    """What the pod's containers wait for, a sentence per Secret; None: for no Secret.

    The kubelet names only the first fault of each container, and retries by itself.
    """
    return " ".join(dict.fromkeys(_sentences(pod))) or None


def _sentences(pod: PodObservation) -> Iterator[str]:
    for container in pod.containers:
        if not container.secrets:
            continue
        if found := _NO_SECRET.search(container.message):
            yield _absent(pod, found["secret"])
        elif found := _NO_KEY.search(container.message):
            yield _without_key(pod, found["secret"], found["key"])


def _absent(pod: PodObservation, secret: str) -> str:
    keys = sorted({use.key for container in pod.containers for use in container.secrets if use.secret == secret})
    literals = "".join(f" --from-literal={key}=…" for key in keys)
    command = f"kubectl -n {pod.namespace} create secret generic {secret}{literals}"
    return f"Secret {pod.namespace}/{secret} does not exist: {command}"


def _without_key(pod: PodObservation, secret: str, key: str) -> str:
    command = f"""kubectl -n {pod.namespace} patch secret {secret} -p '{{"stringData": {{"{key}": "…"}}}}'"""
    return f"Secret {pod.namespace}/{secret} has no key {key}: {command}"
