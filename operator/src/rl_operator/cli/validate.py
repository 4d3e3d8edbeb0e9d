"""`rlctl validate`: say what is wrong with a file, all of it at once."""

import typer

from rl_operator.cli.backend import choose_backend
from rl_operator.cli.exits import ExitCode
from rl_operator.cli.options import Context, Local, Output, OutputFormat, RunFile, StateDir
from rl_operator.cli.printing import print_object
from rl_operator.cli.targets import read_run_file


def validate(
    file: RunFile,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Check a run's file against its runtime and environment; nothing is created."""
    from rl_operator.api.loading import DocumentError
    from rl_operator.cli.checking import refusals_of

    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    try:
        run = read_run_file(file)
        refusals = refusals_of(run, backend)
        accepted = f"{file}: run {run.metadata.name} is accepted by runtime {run.spec.runtime} of {backend.label}"
    except DocumentError as error:
        refusals, accepted = error.refusals, ""
    if output in (Output.JSON, Output.YAML):
        print_object({"accepted": not refusals, "refusals": [refusal.to_wire() for refusal in refusals]}, output)
    elif refusals:
        for refusal in refusals:
            typer.echo(f"error: {refusal.code}: {refusal.sentence}", err=True)
    else:
        typer.echo(accepted)
    raise typer.Exit(ExitCode.REFUSED if refusals else ExitCode.OK)
