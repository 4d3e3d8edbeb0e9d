"""What a run that is starting waits for."""

from rl_operator.status.environments import live_environments, replacement_sentence
from rl_operator.status.observation import CONFIG_MISSING, ContainerObservation, PodObservation
from rl_operator.status.secrets import missing_secrets
from rl_operator.status.view import View

WAITING_TROUBLES = {
    "ErrImagePull": "ImageNotPulled",
    "ImagePullBackOff": "ImageNotPulled",
    "ErrImageNeverPull": "ImageNotPulled",
    "InvalidImageName": "ImageNotPulled",
    CONFIG_MISSING: "ContainerConfigMissing",
    "CreateContainerError": "ContainerNotCreated",
    "RunContainerError": "ContainerNotCreated",
    "CrashLoopBackOff": "ContainerCrashing",
}
"""What a container waits for that does not come by itself -> the reason in our condition."""


def starting_detail(view: View) -> tuple[str, str]:
    """Reason and sentence of a run that is starting: what it waits for."""
    if view.trouble:
        return view.trouble
    pod = view.pod
    if pod is None:
        return "PodCreating", "Creating the pod."
    before = view.run.status.condition("Reconciling")
    if pod.deleting and before:
        return before.reason, before.message  # what it waited for, not how it is taken down
    if trouble := _trouble(pod) or environment_trouble(view):
        return trouble
    if sentence := replacement_sentence(view):
        return "EnvironmentFailing", sentence
    waiting = [c.name for c in pod.containers if c.state != "Ready"]
    apart = [f"environment pod {each.name}" for each in live_environments(view)]
    return "ContainersStarting", f"Waiting for {', '.join([*waiting, *apart]) or 'the pod'}."


def environment_trouble(view: View) -> tuple[str, str] | None:
    """What the first of the environment pods waits for that does not come by itself."""
    return next((trouble for pod in live_environments(view) if (trouble := _trouble(pod))), None)


def _trouble(pod: PodObservation) -> tuple[str, str] | None:
    """What a pod waits for that does not come by itself."""
    if missing := missing_secrets(pod):
        return "SecretMissing", missing
    for container in pod.containers:
        if container.reason in WAITING_TROUBLES:
            return WAITING_TROUBLES[container.reason], _trouble_sentence(container, pod)
    if pod.reason == "Unschedulable":
        return "Unschedulable", f"No node takes pod {pod.name}: {pod.message or 'see kubectl describe pod'}"
    return None


def _trouble_sentence(container: ContainerObservation, pod: PodObservation) -> str:
    message = container.message or "no message"
    return f"Container {container.name} of pod {pod.name} cannot start ({container.reason}): {message}"
