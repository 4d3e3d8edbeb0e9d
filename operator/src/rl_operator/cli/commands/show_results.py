"""`rlctl results`: the figures and where the weights are."""

import typer

from rl_operator.cli.options import Output, OutputFormat, RunName, Scope, on_target
from rl_operator.cli.printing import print_object
from rl_operator.cli.views.follow import exit_code
from rl_operator.cli.views.summary import summary
from rl_operator.targets.run_lookup import existing_run

PARTS = (
    "phase",
    "message",
    "progress",
    "metrics",
    "history",
    "historyName",
    "checkpoint",
    "weights",
    "wandb",
    "failure",
)


@on_target
def results(
    name: RunName,
    *,
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show what a run has reached: figures before and after, weights, checkpoint."""
    from rl_operator.api.run import TrainingRun

    target, place = scope.target, scope.namespace
    manifest = existing_run(target, place, name)
    target.look_after(place, name)
    if output in (Output.JSON, Output.YAML):
        status = manifest.get("status", {})
        parts = {part: status[part] for part in PARTS if part in status}
        print_object({"name": name, "namespace": place, "backEnd": target.label, **parts}, output)
        return
    run = TrainingRun.model_validate(manifest)
    typer.echo(summary(run, target).lstrip("\n"))
    raise typer.Exit(exit_code(run))
