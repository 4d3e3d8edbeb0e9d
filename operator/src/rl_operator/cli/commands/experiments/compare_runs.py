"""`rlctl compare`: runs side by side, or an experiment from best to worst, with a verdict that names its evidence."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rl_operator.cli.options import Experiment, Output, OutputFormat, Scope, on_target
from rl_operator.cli.printing import TEXT_WIDTH, fitted, print_object, text_width
from rl_operator.errors import RefusedError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.experiments.run_figures import RunFigures

MOST_RUNS = 10
"""Side by side."""


@on_target
def compare(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Two runs or more.")] = None,
    *,
    experiment: Experiment = "",
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Compare runs: figures, the settings that differ, and which one is better, as far as the intervals tell.

    With --experiment NAME: all runs of a sweep from best to worst, also those that were deleted. Their table is kept in
    the ConfigMap experiment-NAME.
    """
    named = names or []
    if bool(named) == bool(experiment):
        raise RefusedError("give the names of two runs or more, or --experiment NAME")
    if experiment:
        show_experiment(scope.target, scope.namespace, experiment, output)
    else:
        _show_runs(scope.target, scope.namespace, named, output)


def _show_runs(target: Target, namespace: str, names: list[str], output: Output) -> None:
    from rl_operator.cli.views.comparison_table import comparison_values, side_by_side

    rows = _rows(target, namespace, names)
    if output in (Output.JSON, Output.YAML):
        print_object({"target": target.label, "namespace": namespace, **comparison_values(rows)}, output)
        return
    typer.echo(fitted(side_by_side(rows, _width())))


def _rows(target: Target, namespace: str, names: list[str]) -> "tuple[RunFigures, ...]":
    """Raises RefusedError for too few or too many, for the same twice, and for one that does not exist."""
    from rl_operator.api.run import TrainingRun
    from rl_operator.targets.experiment_runs import figures
    from rl_operator.targets.runs.run_lookup import existing_run

    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RefusedError(f"{twice} is named twice: a run is compared with others")
    if not 2 <= len(names) <= MOST_RUNS:
        named = "one run is named" if len(names) == 1 else f"{len(names)} runs are named"
        raise RefusedError(f"{named}: 2 to {MOST_RUNS} can stand side by side")
    runs = [TrainingRun.model_validate(existing_run(target, namespace, name)) for name in names]
    for name in names:
        target.look_after(namespace, name)
    return figures(target, runs)


def show_experiment(target: Target, namespace: str, name: str, output: Output) -> None:
    """Print the table, and keep it."""
    from rl_operator.cli.views.comparison_table import experiment_table, experiment_values
    from rl_operator.targets.experiment_runs import keep, read_experiment

    found = read_experiment(target, namespace, name)
    if output in (Output.JSON, Output.YAML):
        head = {"target": target.label, "namespace": namespace, "experiment": name}
        print_object({**head, **experiment_values(found.rows)}, output)
    else:
        typer.echo(fitted(experiment_table(found.rows, text_width())))
        gone = sum(row.gone for row in found.rows)
        lost = f", {gone} of them gone" if gone else ""
        typer.echo(f"\n{len(found.rows)} runs of experiment {name}{lost}, in {target.label}", err=True)
    if unkept := keep(target, found):
        target.note(unkept)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else TEXT_WIDTH
