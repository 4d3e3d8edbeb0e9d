"""`rlctl logs`: what a container of a run printed."""

import contextlib
import sys
from typing import Annotated

import typer

from rl_operator.api.names import API_CONTAINER, ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.cli.backend import choose_backend
from rl_operator.cli.exits import RefusedError
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.targets import existing_run

CONTAINERS = (TRAINER_CONTAINER, ENVIRONMENT_CONTAINER, API_CONTAINER)


def logs(
    name: RunName,
    *,
    container: Annotated[str, typer.Option("--container", "-c", help="trainer, environment or api.")] = "trainer",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the container has ended.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Print a container's log, of the run's newest attempt."""
    if container not in CONTAINERS:
        raise RefusedError(f"--container is {container!r}; it must be one of {', '.join(CONTAINERS)}")
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    pod = existing_run(backend, place, name).get("status", {}).get("podName")
    if pod is None:
        raise RefusedError(f"run {name} of {backend.label} has not started, so there is no log yet")
    backend.look_after(place, name)
    with contextlib.suppress(KeyboardInterrupt):
        for line in backend.log_lines(place, pod, container, tail=tail, follow=follow):
            sys.stdout.write(line)
            sys.stdout.flush()
