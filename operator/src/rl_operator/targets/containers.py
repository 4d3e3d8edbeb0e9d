"""From the name of a container that was typed to the pod and container whose log is meant."""

import re
from collections.abc import Iterable

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.errors import RefusedError
from rl_operator.targets.run_names import existing_run
from rl_operator.targets.target import Target

CONTAINERS = (TRAINER_CONTAINER, ENVIRONMENT_CONTAINER, API_CONTAINER)
_CONTAINER = re.compile(rf"({'|'.join(CONTAINERS)})|{ENVIRONMENT_CONTAINER}-(\d+)")


def container_named(target: Target, namespace: str, run: str, container: str) -> tuple[str, str]:
    """Pod and container, of the run's newest attempt. environment is the first environment, environment-1 the second:
    also where they run in pods of their own. Raises RefusedError.
    """
    if not (chosen := _CONTAINER.fullmatch(container)):
        hint = f"it must be one of {', '.join(CONTAINERS)}, or {ENVIRONMENT_CONTAINER}-1 for the second environment"
        raise RefusedError(f"container is {container!r}; {hint}")
    pod = existing_run(target, namespace, run).get("status", {}).get("podName")
    if pod is None:
        raise RefusedError(f"run {run} of {target.label} has not started, so there is no log yet")
    target.look_after(namespace, run)
    if container in (TRAINER_CONTAINER, API_CONTAINER):
        return pod, container
    return _environment_pod(target, namespace, run, pod, int(chosen[2] or 0)), ENVIRONMENT_CONTAINER


def _environment_pod(target: Target, namespace: str, run: str, run_pod: str, slot: int) -> str:
    """The pod whose environment has this number: the newest one apart, or for number 0 the run's own pod."""
    found = environment_pods(target.pod_names(namespace, run), run_pod)
    if slot in found:
        return found[slot]
    if slot == 0:
        return run_pod
    known = ", ".join(f"{ENVIRONMENT_CONTAINER}-{number}" for number in sorted(found) if number) or "only one"
    raise RefusedError(f"run {run} of {target.label} has no {ENVIRONMENT_CONTAINER}-{slot}; it has {known}")


def environment_pods(names: Iterable[str], run_pod: str) -> dict[int, str]:
    """By slot, the newest environment pod of an attempt, from names like `sorting-0a1b2-1-env-<slot>-<n>`."""
    pattern = re.compile(rf"{re.escape(run_pod)}-env-(\d+)-(\d+)")
    matches = (match for name in names if (match := pattern.fullmatch(name)))
    in_order = sorted(matches, key=lambda match: (int(match[1]), int(match[2])))
    return {int(match[1]): match[0] for match in in_order}
