"""From names and selectors as typed to runs, to the pod and container of a log, and to what is kept of a run."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import (
    API_CONTAINER,
    ENVIRONMENT_CONTAINER,
    OPENENV_CONTAINER,
    SANDBOX_CONTAINER,
    STARTED_AS_ANNOTATION,
    TRAINER_CONTAINER,
)
from rl_operator.operator_errors import ForbiddenError, OperatorError, RefusedError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.training_run import TrainingRun
    from rl_operator.status.observed.history import Point


def existing_run(target: Target, namespace: str, name: str) -> Manifest:
    """Raises RefusedError naming the existing runs, as far as the caller may list them."""
    run = target.run(namespace, name)
    if run is not None:
        return run
    try:
        names = [each["metadata"]["name"] for each in target.runs(namespace, "")]
        known = f"; there are: {', '.join(sorted(names)[:10])}" if names else "; there are none"
    except ForbiddenError:
        known = ""
    raise RefusedError(f"there is no run {name!r} in namespace {namespace} of {target.label}{known}")


def events_seen(target: Target, run: "TrainingRun") -> tuple[list[str], str]:
    """What happened to the run; for a caller who may not see it nothing, and what that takes."""
    namespace, name = run.key
    try:
        return target.events(namespace, name, run.metadata.uid), ""
    except ForbiddenError:
        right = f"the right to list events of events.k8s.io in namespace {namespace}"
        return [], f"What happened is not shown: that takes {right}."


CONTAINERS = (TRAINER_CONTAINER, ENVIRONMENT_CONTAINER, API_CONTAINER, OPENENV_CONTAINER)
_CONTAINER = re.compile(rf"(?P<name>{'|'.join(CONTAINERS)})(-(?P<slot>\d+))?")
_IN_SLOTS = (ENVIRONMENT_CONTAINER, OPENENV_CONTAINER)
_SILENT = "sandboxes print nothing: the agent gets what its commands print, and the run's message says how one failed"


def container_named(target: Target, namespace: str, run: str, container: str) -> tuple[str, str]:
    """Pod and container, of the run's newest attempt. environment is the first environment, environment-1 the second,
    even if they run in separate pods; openenv, openenv-1 are the servers beside them. Raises RefusedError.
    """
    chosen = _CONTAINER.fullmatch(container)
    if chosen is None or (chosen["slot"] and chosen["name"] not in _IN_SLOTS):
        choice = f"it must be one of {', '.join(CONTAINERS)}, or {ENVIRONMENT_CONTAINER}-1 for the second environment"
        hint = _SILENT if container.startswith(SANDBOX_CONTAINER) else choice
        raise RefusedError(f"container is {container!r}; {hint}")
    status = existing_run(target, namespace, run).get("status", {})
    pod = status.get("podName")
    if pod is None:
        raise RefusedError(f"run {run} of {target.label} has not started, so there is no log yet")
    target.look_after(namespace, run)
    if chosen["name"] not in _IN_SLOTS:
        return pod, container
    slot = int(chosen["slot"] or 0)
    try:
        return _environment_pod(target, namespace, run, pod, slot), chosen["name"]
    except ForbiddenError as error:
        if slot == 0 and "environments" not in status:  # none runs in a separate pod
            return pod, chosen["name"]
        right = f"the right to list pods in namespace {namespace}"
        raise ForbiddenError(f"to find the pod of an environment takes {right} ({error})") from error


def _environment_pod(target: Target, namespace: str, run: str, run_pod: str, slot: int) -> str:
    """The pod whose environment has this number: the newest separate one, or for number 0 the run's own pod."""
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


def kept_points(run: "TrainingRun", target: Target) -> "tuple[Point, ...]":
    """In the order of steps; empty if the history is lost, not this run's, or not readable for the caller."""
    from rl_operator.render.catalog_and_history import stored_history
    from rl_operator.status.observed.history import read_points

    if run.status.history_name is None:
        return ()
    try:
        found = target.read("ConfigMap", run.metadata.namespace, run.status.history_name)
    except OperatorError:
        return ()
    owners = found["metadata"].get("ownerReferences", ()) if found else ()
    ours = any(owner["uid"] == run.metadata.uid for owner in owners)
    return read_points(stored_history(found)) if found and ours else ()


def kept_rewards(run: "TrainingRun", target: Target) -> list[float]:
    from rl_operator.status.observed.history import rewards

    return rewards(kept_points(run, target))


def was_restored(run: Manifest) -> bool:
    """Whether the run was started in a former life and waits to be started again."""
    from rl_operator.api.training_run import TrainingRun
    from rl_operator.status.attempt.restored import is_restored

    return STARTED_AS_ANNOTATION in run["metadata"].get("annotations", {}) and is_restored(
        TrainingRun.model_validate(run)
    )


Labels = Mapping[str, str]

_KEY: Final = r"[A-Za-z0-9]([A-Za-z0-9./_-]*[A-Za-z0-9])?"
_VALUE: Final = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_TERM: Final = re.compile(
    rf"(?P<key>{_KEY})\s*(?P<sign>!=|==?)\s*(?P<value>{_VALUE})|(?P<absent>!?)\s*(?P<name>{_KEY})"
)


def parse_selector(text: str) -> Callable[[Labels], bool]:
    """A predicate over labels, as kubectl reads it: `key=value`, `key!=value`, `key`, `!key`, joined by commas; an
    empty text matches everything. Raises RefusedError.
    """
    terms = [_parse_term(term) for term in map(str.strip, text.split(",")) if term]
    return lambda labels: all(term(labels) for term in terms)


def _parse_term(term: str) -> Callable[[Labels], bool]:
    found = _TERM.fullmatch(term)
    if found is None:
        raise RefusedError(f"--selector has {term!r}: a term is key=value, key!=value, key or !key")
    key, sign, value, absent, name = found.group("key", "sign", "value", "absent", "name")
    if key is None:
        return lambda labels: (name in labels) is not bool(absent)
    return lambda labels: (labels.get(key) == value) is (sign != "!=")
