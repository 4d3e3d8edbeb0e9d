"""`rlctl watch`: look on while a run runs."""

import contextlib

import typer

from rl_operator.backends.choice import choose_backend
from rl_operator.backends.targets import existing_run
from rl_operator.cli.follow import at_rest, exit_code, follow, shown
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.summary import summary


def watch(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Follow a run until it is over; Ctrl-C ends only the watching."""
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    existing_run(backend, place, name)
    backend.look_after(place, name)
    with contextlib.suppress(KeyboardInterrupt):
        with shown(backend.label) as show:
            run = follow(backend, place, name, at_rest, show)
        typer.echo(summary(run, backend))
        raise typer.Exit(exit_code(run))
