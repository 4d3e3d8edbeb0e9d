"""`rlctl sweep`: one run for each combination of values, checked together, then shown, written or started.

In local mode they train a few at a time: `targets/experiment_runs.py` starts them.
"""

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from rl_operator.api.training_run import RunSpec, TrainingRun
from rl_operator.cli.commands.compare_runs import show_experiment
from rl_operator.cli.commands.start_run import apply_beside, prepare
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import ModelFolder, OutputFormat, OutputKind, RunPath, Scope, on_target
from rl_operator.cli.printing import columns, one_line, print_object, program
from rl_operator.documents.yaml_text import flow, write_yaml
from rl_operator.experiments.grid import Point, parse_axis, points_of, runs_of
from rl_operator.local.own_environments import FILE_ANNOTATION
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.experiment_runs import (
    Over,
    check_runs,
    count_active,
    create_runs,
    keep,
    read_experiment,
    require_label,
    require_own_record,
    runs_to_create,
    train_all,
)
from rl_operator.targets.inputs.run_file import RunFile, read_run_file, with_file
from rl_operator.targets.target import Target

SHOWN_NAMES = 3
AT_ONCE_ON_THIS_MACHINE = 1
"""Runs that train at the same time in local mode: each of them takes the machine's cores."""


@dataclass(frozen=True)
class Sweep:
    """`runs` and `points` belong together; `file`: what they were made from."""

    experiment: str
    file: RunFile
    points: tuple[Point, ...]
    runs: tuple[TrainingRun, ...]

    @property
    def namespace(self) -> str:
        return self.file.run.metadata.namespace


@on_target
def sweep(
    file: RunPath,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE,…", help="Values of a field, like trainer.seed=0,1; several times."),
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
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """Make a run for each combination of values, labeled as one experiment; if one is refused, none is started.

    rlctl sweep run.yaml --set trainer.learning_rate=1e-4,3e-4 --set trainer.seed=0,1 --start

    rlctl compare --experiment NAME ranks them.
    """
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
        paths = write_runs(made, write, target.namespace)
        typer.echo(f"{len(paths)} files are in {write}; start one: {program()} run {paths[0]}{target.flags}", err=True)
    elif start:  # without following, a cluster gets all of them
        at_once = parallel or (AT_ONCE_ON_THIS_MACHINE if target.runs_files else None)
        raise typer.Exit(start_runs(made, target, at_once, output, go_on=go_on))
    _show(made, target, output)
    if not write and output in (OutputKind.TEXT, OutputKind.WIDE):
        typer.echo("\nnothing is started: --start starts them, --write DIR writes a file for each", err=True)


def _made(given: RunFile, file: Path, target: Target, points: tuple[Point, ...], name: str) -> Sweep:
    """Raises RefusedError and DocumentError."""
    experiment = require_label(name or given.run.metadata.name)
    folder = Path.cwd() if str(file) == "-" else file.absolute().parent
    runs = (with_file(run, folder, target) for run in runs_of(given.run, experiment, points))
    return Sweep(experiment, given, points, tuple(runs))


def _refuse(made: Sweep, target: Target, output: OutputKind) -> None:
    """Every refusal at once, like `rlctl validate`."""
    refused = check_runs(made.file, made.runs, target)
    if not refused:
        return
    if output in (OutputKind.JSON, OutputKind.YAML):
        refusals = [{**each.refusal.to_wire(), "sentence": each.sentence, "runs": list(each.names)} for each in refused]
        print_object({"accepted": False, "refusals": refusals}, output)
    else:
        for each in refused:
            typer.echo(f"error: {each.refusal.code}: {each.sentence}", err=True)
        typer.echo("no run is started or written: correct the values, and all of them are checked again", err=True)
    raise typer.Exit(CommandExit.REFUSED)


def _show(made: Sweep, target: Target, output: OutputKind) -> None:
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object(sweep_values(made, target), output)
        return

    fields = list(made.points[0])
    rows = [
        [run.metadata.name, *(flow(point[field]) for field in fields)]
        for run, point in zip(made.runs, made.points, strict=True)
    ]
    typer.echo(columns(["NAME", *fields], rows))
    typer.echo(f"\n{len(rows)} runs of experiment {made.experiment}, accepted by {target.label}", err=True)


def sweep_values(made: Sweep, target: Target) -> dict[str, object]:
    """The sweep as JSON."""
    pairs = zip(made.runs, made.points, strict=True)
    runs = [{"name": run.metadata.name, "swept": dict(point)} for run, point in pairs]
    return {"target": target.label, "namespace": made.namespace, "experiment": made.experiment, "runs": runs}


# --- written ---------------------------------------------------------------------------------------------------------
def write_runs(sweep: Sweep, folder: Path, usual_namespace: str) -> list[Path]:
    """The files, each with the objects that stood beside the run. Raises RefusedError if one of them is there already,
    and then nothing is written.
    """
    paths = [folder / f"{run.metadata.name}.yaml" for run in sweep.runs]
    if there := [path for path in paths if path.exists()]:
        raise RefusedError(f"{there[0]} is there already: nothing is written; choose another folder, or remove it")
    beside = [document for document in sweep.file.beside if document is not sweep.file.model_runtime]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, run in zip(paths, sweep.runs, strict=True):
            documents = [*beside, as_written(run, folder, usual_namespace)]
            path.write_text("---\n".join(map(write_yaml, documents)), encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"cannot write to {folder}: {error.strerror}") from None
    return paths


def as_written(run: TrainingRun, folder: Path, usual_namespace: str) -> dict[str, object]:
    """Without what a run has anyway, and without the caller's usual namespace. The path of an environment's file begins
    at the new file's folder.
    """
    spec = run.spec.to_wire()
    usual = RunSpec(environment=run.spec.environment).to_wire()
    kept = {name: value for name, value in spec.items() if name in ("environment", "runtime") or value != usual[name]}
    annotations = dict(run.metadata.annotations)
    if path := annotations.pop(FILE_ANNOTATION, None):
        kept["environment"] = str(Path(os.path.relpath(path, folder.absolute())))
    metadata = run.metadata
    place = {"namespace": metadata.namespace} if metadata.namespace != usual_namespace else {}
    head = {"name": metadata.name, **place, "labels": metadata.labels, "annotations": annotations}
    return {"apiVersion": run.api_version, "kind": run.kind, "metadata": head, "spec": kept}


# --- started --------------------------------------------------------------------------------------------------------
def start_runs(sweep: Sweep, target: Target, at_once: int | None, output: OutputKind, *, go_on: bool) -> CommandExit:
    """Raises RefusedError before anything is created, if a name is taken. `at_once` None: all, without following."""
    if sweep.file.run.spec.suspend:
        raise RefusedError("spec.suspend is true in the file, so --start would start nothing: remove it there")
    require_own_record(target, sweep.namespace, sweep.experiment)
    new = runs_to_create(target, sweep.runs, go_on=go_on)
    prepare(target, sweep.runs[0], sweep.file.beside)
    apply_beside(target, sweep.file)
    running = 0 if at_once is None else count_active(target, sweep.runs)
    free = len(new) if at_once is None else max(0, at_once - running)
    create_runs(target, new, free, len(sweep.runs), lambda sentence: typer.echo(sentence, err=True))
    if new:
        names = ", ".join(run.metadata.name for run in new[:SHOWN_NAMES])
        more = f" and {len(new) - SHOWN_NAMES} more" if len(new) > SHOWN_NAMES else ""
        typer.echo(f"{len(new)} runs are created: {names}{more} ({target.label})", err=True)
    if unkept := keep(target, read_experiment(target, sweep.namespace, sweep.experiment)):
        target.note(unkept)
    if at_once is not None:
        return _followed(sweep, target, at_once, output)
    if output in (OutputKind.JSON, OutputKind.YAML):
        print_object(sweep_values(sweep, target), output)
    else:
        look = f"{program()} list --experiment {sweep.experiment}{target.flags}"
        typer.echo(f"they run on their own; look: {look}\nrank them: {_rank(sweep, target)}")
    return CommandExit.OK


def _rank(sweep: Sweep, target: Target) -> str:
    return f"{program()} compare --experiment {sweep.experiment}{target.flags}"


def _followed(sweep: Sweep, target: Target, at_once: int, output: OutputKind) -> CommandExit:
    names = [run.metadata.name for run in sweep.runs]
    try:
        failed = train_all(target, sweep.namespace, names, at_once, print_ends(len(names)))
    except KeyboardInterrupt:
        typer.echo(
            "\nwhat has begun continues by itself, the others are drafts; the same command with --continue goes on, "
            f"{_rank(sweep, target)} ranks what is there",
            err=True,
        )
        return CommandExit.INTERRUPTED
    show_experiment(target, sweep.namespace, sweep.experiment, output)
    return CommandExit.RUN_FAILED if failed else CommandExit.OK


def print_ends(size: int) -> Over:
    """A line for each run that is over, of so many."""
    numbers = count(1)

    def over(name: str, run: TrainingRun | None) -> None:
        if run is None:
            end = "was deleted"
        elif run.status.metrics is None or run.status.metrics.held_out is None:
            end = f"{run.status.phase}: {one_line(run.status.message or '')}"
        else:
            end = f"{run.status.phase}  held-out {run.status.metrics.held_out.text}"
        typer.echo(f"{next(numbers)} of {size}  {name}  {end}", err=True)

    return over
