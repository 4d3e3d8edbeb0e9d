"""`rlctl validate`: report everything that is wrong with a file."""

from typing import TYPE_CHECKING

import typer

from rl_operator.cli.exits import ExitCode
from rl_operator.cli.options import ModelFolder, Output, OutputFormat, RunPath, Scope, on_target
from rl_operator.cli.printing import print_object

if TYPE_CHECKING:
    from rl_operator.api.refusal import Refusal


@on_target
def validate(
    file: RunPath,
    *,
    model: ModelFolder = None,
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Check a run's file against its runtime and environment; nothing is created.

    A ConfigMap, an RLEnvironment or an RLRuntime beside the run in the file counts as if it were applied.
    """
    from rl_operator.documents.parse import DocumentError
    from rl_operator.targets.inputs.file_inputs import check_file
    from rl_operator.targets.inputs.run_file import read_run_file

    target = scope.target
    pending: tuple[str, str] | None = None
    refusals: tuple[Refusal, ...]
    try:
        given = read_run_file(file, target, scope.asked_namespace, model)
        refusals, pending = check_file(given, target)
        run = given.run
        accepted = f"{file}: run {run.metadata.name} is accepted by runtime {run.spec.runtime} of {target.label}"
    except DocumentError as error:
        refusals, accepted = error.refusals, ""
    if output in (Output.JSON, Output.YAML):
        waits = {"waits": {"reason": pending[0], "message": pending[1]}} if pending else {}
        found = [{**refusal.to_wire(), "sentence": refusal.sentence} for refusal in refusals]
        print_object({"accepted": not refusals, "refusals": found, **waits}, output)
    elif refusals:
        for refusal in refusals:
            typer.echo(f"error: {refusal.code}: {refusal.sentence}", err=True)
    else:
        typer.echo(f"{accepted}\n  {pending[1]}" if pending else accepted)
    raise typer.Exit(ExitCode.REFUSED if refusals else ExitCode.OK)
