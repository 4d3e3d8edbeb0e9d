"""`rlctl delete`: remove a run and what belongs to it. Checkpoints and weights stay with the backend."""

import typer

from rl_operator.backends.choice import choose_backend
from rl_operator.backends.targets import existing_run
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir


def delete(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Delete a run; if it is running, it is stopped first. Its weights stay."""
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    existing_run(backend, place, name)
    backend.delete(place, name)
    typer.echo(f"{name} is deleted ({backend.label})")
