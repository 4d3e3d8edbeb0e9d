"""`rlctl logs`: what a container of a run printed."""

import contextlib
import re
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.cli.backend import BackEnd, choose_backend
from rl_operator.cli.exits import RefusedError
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.targets import existing_run

CONTAINERS = (TRAINER_CONTAINER, ENVIRONMENT_CONTAINER, API_CONTAINER)
_CONTAINER = re.compile(rf"({'|'.join(CONTAINERS)})|{ENVIRONMENT_CONTAINER}-(\d+)")


def logs(
    name: RunName,
    *,
    container: Annotated[
        str, typer.Option("--container", "-c", help="trainer, environment, environment-1 …, or api.")
    ] = "trainer",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the container has ended.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Print a container's log, of the run's newest attempt.

    environment is the first environment, environment-1 the second: also where they run in pods of their own.
    """
    if not (chosen := _CONTAINER.fullmatch(container)):
        hint = f"it must be one of {', '.join(CONTAINERS)}, or {ENVIRONMENT_CONTAINER}-1 for the second environment"
        raise RefusedError(f"--container is {container!r}; {hint}")
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    pod = existing_run(backend, place, name).get("status", {}).get("podName")
    if pod is None:
        raise RefusedError(f"run {name} of {backend.label} has not started, so there is no log yet")
    backend.look_after(place, name)
    if container not in (TRAINER_CONTAINER, API_CONTAINER):
        slot, container = int(chosen[2] or 0), ENVIRONMENT_CONTAINER
        pod = _environment_pod(backend, place, name, pod, slot)
    with contextlib.suppress(KeyboardInterrupt):
        for line in backend.log_lines(place, pod, container, tail=tail, follow=follow):
            sys.stdout.write(line)
            sys.stdout.flush()


def _environment_pod(backend: BackEnd, namespace: str, run: str, run_pod: str, slot: int) -> str:
    """The pod whose environment has this number: the newest one apart, or for number 0 the run's own pod."""
    found = environment_pods(backend.pod_names(namespace, run), run_pod)
    if slot in found:
        return found[slot]
    if slot == 0:
        return run_pod
    known = ", ".join(f"{ENVIRONMENT_CONTAINER}-{number}" for number in sorted(found) if number) or "only one"
    raise RefusedError(f"run {run} of {backend.label} has no {ENVIRONMENT_CONTAINER}-{slot}; it has {known}")


def environment_pods(names: Iterable[str], run_pod: str) -> dict[int, str]:
    """By slot, the newest environment pod of an attempt, from names like `sorting-0a1b2-1-env-<slot>-<n>`."""
    pattern = re.compile(rf"{re.escape(run_pod)}-env-(\d+)-(\d+)")
    matches = (match for name in names if (match := pattern.fullmatch(name)))
    in_order = sorted(matches, key=lambda match: (int(match[1]), int(match[2])))
    return {int(match[1]): match[0] for match in in_order}
