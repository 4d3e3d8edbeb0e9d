"""`rlctl sweep --start`: the runs of a sweep are created together, and in local mode trained a few at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rl_operator.cli.commands.experiments.compare_runs import show_experiment
from rl_operator.cli.commands.start_run import apply_beside, prepare
from rl_operator.cli.exits import ExitCode
from rl_operator.cli.options import Output
from rl_operator.cli.printing import print_object, program
from rl_operator.errors import OperatorError, RefusedError
from rl_operator.targets.target import Manifest, Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun
    from rl_operator.cli.commands.experiments.sweep_runs import Sweep

SHOWN_NAMES = 3


def start_runs(sweep: "Sweep", target: Target, at_once: int | None, output: Output, *, go_on: bool) -> ExitCode:
    """Raises RefusedError before anything is created, if a name is taken. `at_once` None: all, without following."""
    from rl_operator.targets.experiment_runs import keep, read_experiment, require_own_record

    if sweep.file.run.spec.suspend:
        raise RefusedError("spec.suspend is true in the file, so --start would start nothing: remove it there")
    require_own_record(target, sweep.namespace, sweep.experiment)
    new = [run for run in sweep.runs if not _is_there(run, target, go_on=go_on)]
    prepare(target, sweep.runs[0], sweep.file.beside)
    apply_beside(target, sweep.file)
    running = 0 if at_once is None else sum(_is_active(target, run) for run in sweep.runs)
    free = len(new) if at_once is None else max(0, at_once - running)
    _create(target, new, free, len(sweep.runs))
    if unkept := keep(target, read_experiment(target, sweep.namespace, sweep.experiment)):
        target.note(unkept)
    if at_once is None:
        return _started(sweep, target, output)
    return _followed(sweep, target, at_once, output)


def _is_there(run: "TrainingRun", target: Target, *, go_on: bool) -> bool:
    """Raises RefusedError if the name is taken: with `go_on` by a run that is not this one of this sweep."""
    existing = target.run(*run.key)
    if existing is None:
        return False
    name = run.metadata.name
    if not go_on:
        raise RefusedError(
            f"run {name} is there already in namespace {run.metadata.namespace} of {target.label}, so none is started: "
            "choose another --name, delete it, or go on with the same sweep by --continue"
        )
    if difference := _difference(existing, run):
        raise RefusedError(f"run {name} is there already, and is not the one of this sweep: {difference}")
    return True


def _difference(existing: Manifest, run: "TrainingRun") -> str:
    """Empty if it is the same run of the same experiment, started or not."""
    from rl_operator.api.names import EXPERIMENT_LABEL
    from rl_operator.cli.views.changes import spec_changes
    from rl_operator.documents.parse import parse_stored_run

    wanted = run.metadata.labels[EXPERIMENT_LABEL]
    label = existing["metadata"].get("labels", {}).get(EXPERIMENT_LABEL)
    if label != wanted:
        return f"its label {EXPERIMENT_LABEL} is {label!r} instead of {wanted!r}"
    was, given = (each.to_wire()["spec"] for each in (parse_stored_run(existing), run))
    changes = spec_changes({**was, "suspend": False}, {**given, "suspend": False})
    return ", ".join(f"{change.field} is {change.before} there and {change.after} here" for change in changes)


def _is_active(target: Target, run: "TrainingRun") -> bool:
    """Whether it exists and trains, or is about to."""
    from rl_operator.documents.parse import parse_stored_run

    existing = target.run(*run.key)
    if existing is None:
        return False
    found = parse_stored_run(existing)
    return not (found.at_rest or found.spec.suspend)


def _create(target: Target, runs: "Sequence[TrainingRun]", free: int, size: int) -> None:
    """The first `free` of them start; the others are drafts until it is their turn."""
    for number, run in enumerate(runs):
        wanted = run if number < free else run.with_changes(spec=run.spec.with_changes(suspend=True))
        document, metadata = wanted.to_wire(), run.metadata
        head = {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
        }
        try:
            target.create({**{key: document[key] for key in ("apiVersion", "kind", "spec")}, "metadata": head})
        except OperatorError:
            if number:
                typer.echo(f"{number} of {size} runs are created, and no more: see below; --continue goes on", err=True)
            raise
    if runs:
        typer.echo(
            f"{len(runs)} runs are created: {_listed([run.metadata.name for run in runs])} ({target.label})", err=True
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"{', '.join(names[:SHOWN_NAMES])}{more}"


def _started(sweep: "Sweep", target: Target, output: Output) -> ExitCode:
    from rl_operator.cli.commands.experiments.sweep_runs import sweep_values

    if output in (Output.JSON, Output.YAML):
        print_object(sweep_values(sweep, target), output)
    else:
        look = f"{program()} list --experiment {sweep.experiment}{target.flags}"
        typer.echo(f"they run on their own; look: {look}\nrank them: {_rank(sweep, target)}")
    return ExitCode.OK


def _rank(sweep: "Sweep", target: Target) -> str:
    return f"{program()} compare --experiment {sweep.experiment}{target.flags}"


def _followed(sweep: "Sweep", target: Target, at_once: int, output: Output) -> ExitCode:
    from rl_operator.cli.views.sweep_progress import follow_all

    names = [run.metadata.name for run in sweep.runs]
    try:
        failed = follow_all(target, sweep.namespace, names, at_once)
    except KeyboardInterrupt:
        typer.echo(
            "\nwhat has begun continues by itself, the others are drafts; the same command with --continue goes on, "
            f"{_rank(sweep, target)} ranks what is there",
            err=True,
        )
        return ExitCode.INTERRUPTED
    show_experiment(target, sweep.namespace, sweep.experiment, output)
    return ExitCode.RUN_FAILED if failed else ExitCode.OK
