"""`rlctl delete`: remove a run and what belongs to it. Checkpoints and weights stay with the backend."""

import typer

from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.targets.choice import choose_target
from rl_operator.targets.run_names import existing_run


def delete(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Delete a run; if it is running, it is stopped first. Its weights stay."""
    target = choose_target(local=local, context=context, state_dir=state_dir)
    place = namespace or target.namespace
    existing_run(target, place, name)
    target.delete(place, name)
    typer.echo(f"{name} is deleted ({target.label})")
