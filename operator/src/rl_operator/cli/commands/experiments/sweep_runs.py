"""`rlctl sweep`: one run for each combination of values, checked together, then shown, written or started."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_operator.cli.exits import ExitCode
from rl_operator.cli.options import ModelFolder, Output, OutputFormat, RunPath, Scope, on_target
from rl_operator.cli.printing import columns, print_object, program
from rl_operator.errors import RefusedError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.experiments.grid import Point
    from rl_operator.targets.inputs.grid_check import RefusedRuns
    from rl_operator.targets.inputs.run_file import RunFile

AT_ONCE_ON_THIS_MACHINE = 1
"""Runs that train at the same time in local mode: each of them takes the machine's cores."""


@dataclass(frozen=True)
class Sweep:
    """`runs` and `points` belong together; `file`: what they were made from."""

    experiment: str
    file: "RunFile"
    points: "tuple[Point, ...]"
    runs: "tuple[TrainingRun, ...]"

    @property
    def namespace(self) -> str:
        return self.file.run.metadata.namespace


@on_target
def sweep(
    file: RunPath,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE,…", help="Values of a field, like tinker.seed=0,1; several times."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the experiment; default: the run's.")] = "",
    start: Annotated[bool, typer.Option("--start", help="Start the runs.")] = False,
    write: Annotated[Path | None, typer.Option("--write", metavar="DIR", help="Write a file for each run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show and check them; so without --start.")] = False,
    parallel: Annotated[
        int | None,
        typer.Option(
            help="With --start: follow, and let so many train at once. Default: 1 with --local; on a cluster all are "
            "created, and the runtime decides.",
            min=1,
        ),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--continue", help="With --start: go on with runs of this sweep that exist.")
    ] = False,
    most: Annotated[int, typer.Option(help="Most runs that the grid may have.", min=1)] = 64,
    model: ModelFolder = None,
    scope: Scope,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Make a run for each combination of values, labeled as one experiment; if one is refused, none is started.

    rlctl sweep run.yaml --set tinker.learning_rate=1e-4,3e-4 --set tinker.seed=0,1 --start

    rlctl compare --experiment NAME ranks them.
    """
    from rl_operator.experiments.grid import parse_axis, points_of
    from rl_operator.targets.inputs.run_file import read_run_file

    if start + bool(write) + dry_run > 1:
        raise RefusedError("give one of --start, --write DIR and --dry-run")
    if (go_on or parallel) and not start:
        raise RefusedError(f"{'--continue' if go_on else '--parallel'} is about the start of runs: add --start")
    target = scope.target
    points = points_of([parse_axis(text) for text in settings or []], most)
    made = _made(read_run_file(file, target, scope.asked_namespace, model), file, target, points, name)
    if not scope.asked_namespace and made.namespace != target.namespace:  # the file's own
        target.flags += f" -n {made.namespace}"
    _refuse(made, target, output)
    if write:
        from rl_operator.cli.commands.experiments.sweep_files import write_runs

        paths = write_runs(made, write, target.namespace)
        typer.echo(f"{len(paths)} files are in {write}; start one: {program()} run {paths[0]}{target.flags}", err=True)
    elif start:
        from rl_operator.cli.commands.experiments.sweep_start import start_runs

        raise typer.Exit(start_runs(made, target, _at_once(parallel, target), output, go_on=go_on))
    _show(made, target, output)
    if not write and output in (Output.TEXT, Output.WIDE):
        typer.echo("\nnothing is started: --start starts them, --write DIR writes a file for each", err=True)


def _at_once(parallel: int | None, target: Target) -> int | None:
    """None: all of them, without following."""
    return parallel or (AT_ONCE_ON_THIS_MACHINE if target.runs_files else None)


def _made(given: "RunFile", file: Path, target: Target, points: "tuple[Point, ...]", name: str) -> Sweep:
    """Raises RefusedError and DocumentError."""
    from rl_operator.experiments.grid import runs_of
    from rl_operator.targets.experiment_runs import require_label
    from rl_operator.targets.inputs.run_file import with_file

    experiment = require_label(name or given.run.metadata.name)
    folder = Path.cwd() if str(file) == "-" else file.absolute().parent
    runs = (with_file(run, folder, target) for run in runs_of(given.run, experiment, points))
    return Sweep(experiment, given, points, tuple(runs))


def _refuse(made: Sweep, target: Target, output: Output) -> None:
    """Every refusal at once, like `rlctl validate`."""
    from rl_operator.targets.inputs.grid_check import check_runs

    refused = check_runs(made.file, made.runs, target)
    if not refused:
        return
    if output in (Output.JSON, Output.YAML):
        print_object({"accepted": False, "refusals": [_refusal_values(each) for each in refused]}, output)
    else:
        for each in refused:
            typer.echo(f"error: {each.refusal.code}: {each.sentence}", err=True)
        typer.echo("no run is started or written: correct the values, and all of them are checked again", err=True)
    raise typer.Exit(ExitCode.REFUSED)


def _refusal_values(each: "RefusedRuns") -> dict[str, Any]:
    return {**each.refusal.to_wire(), "sentence": each.sentence, "runs": list(each.names)}


def _show(made: Sweep, target: Target, output: Output) -> None:
    if output in (Output.JSON, Output.YAML):
        print_object(sweep_values(made, target), output)
        return
    from rl_operator.documents.yaml_lines import flow

    fields = list(made.points[0])
    rows = [
        [run.metadata.name, *(flow(point[field]) for field in fields)]
        for run, point in zip(made.runs, made.points, strict=True)
    ]
    typer.echo(columns(["NAME", *fields], rows))
    typer.echo(f"\n{len(rows)} runs of experiment {made.experiment}, accepted by {target.label}", err=True)


def sweep_values(made: Sweep, target: Target) -> dict[str, Any]:
    """The sweep as JSON."""
    pairs = zip(made.runs, made.points, strict=True)
    runs = [{"name": run.metadata.name, "swept": dict(point)} for run, point in pairs]
    return {"target": target.label, "namespace": made.namespace, "experiment": made.experiment, "runs": runs}
