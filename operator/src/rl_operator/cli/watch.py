"""`rlctl watch`: look on while a run runs."""

import contextlib

import typer

from rl_operator.cli.follow import at_rest, exit_code, follow, shown
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.summary import summary
from rl_operator.targets.choice import choose_target
from rl_operator.targets.run_names import existing_run


def watch(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Follow a run until it is over; Ctrl-C ends only the watching."""
    target = choose_target(local=local, context=context, state_dir=state_dir)
    place = namespace or target.namespace
    existing_run(target, place, name)
    target.look_after(place, name)
    with contextlib.suppress(KeyboardInterrupt):
        with shown(target.label) as show:
            run = follow(target, place, name, at_rest, show)
        typer.echo(summary(run, target))
        raise typer.Exit(exit_code(run))
