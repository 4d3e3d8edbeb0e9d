"""`rlctl logs`: what a container of a run printed."""

import contextlib
import sys
from typing import Annotated

import typer

from rl_operator.cli.options import RunName, Scope, on_target
from rl_operator.targets.run_lookup import container_named


@on_target
def logs(
    name: RunName,
    *,
    container: Annotated[
        str, typer.Option("--container", "-c", help="trainer, environment, environment-1 …, or api.")
    ] = "trainer",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the container has ended.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
    scope: Scope,
) -> None:
    """Print a container's log, of the run's newest attempt.

    environment is the first environment, environment-1 the second: also where they run in pods of their own.
    """
    target, place = scope.target, scope.namespace
    pod, chosen = container_named(target, place, name, container)
    with contextlib.suppress(KeyboardInterrupt):
        for line in target.log_lines(place, pod, chosen, tail=tail, follow=follow):
            sys.stdout.write(line)
            sys.stdout.flush()
