"""`rlctl run`: from a file to a run that is followed to its end. `rlctl stop`: end a run cleanly, with a checkpoint.
`rlctl resume`: start a draft, or continue a stopped run. `rlctl delete`.
"""

import select
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import MAX_RUN_NAME_LENGTH, RUNTIME_KIND, STARTED_AS_ANNOTATION
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.options import ModelFolder, RunName, RunPath, Scope, on_target
from rl_operator.cli.printing import program
from rl_operator.cli.views.follow import exit_code, follow, shown
from rl_operator.cli.views.installing import installing
from rl_operator.cli.views.run_lines import summary
from rl_operator.documents.merge_patch import merge_patch
from rl_operator.documents.parse import parse_stored_run
from rl_operator.operator_errors import ConflictError, NameTakenError, RefusedError
from rl_operator.targets.inputs.run_file import RunFile, authored, read_run_file
from rl_operator.targets.local_target import install_requirements
from rl_operator.targets.runs.run_control import AskedBudget, resume_run, stop_run, suspend_warning
from rl_operator.targets.runs.run_lookup import existing_run, was_restored
from rl_operator.targets.runs.spec_changes import spec_changes
from rl_operator.targets.target import Target


@on_target
def stop(
    name: RunName,
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for it; 0: do not wait.")] = 120.0,
    scope: Scope,
) -> None:
    """Stop a run: the trainer saves a checkpoint from which it can be resumed."""
    target, place = scope.target, scope.namespace
    stop_run(target, place, name, _warn)
    if not timeout:
        typer.echo(f"{name} is asked to stop ({target.label})")
        return
    rested = follow(target, place, name, timeout=timeout)
    typer.echo(f"{name}: {rested.status.phase}: {rested.status.message} ({target.label})")


@on_target
def resume(
    name: RunName,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT", help="What it may cost in all from now on (spec.budget): 20, or '20 USD' with a currency."
        ),
    ] = None,
    scope: Scope,
) -> None:
    """Set suspend to false: a draft starts, a stopped run continues from its last checkpoint, a restored one begins.

    A run that has spent its budget continues with a higher one.
    """
    target, asked = scope.target, None if budget is None else AskedBudget.of_text(budget)

    def install(run: Manifest) -> None:
        install_requirements(target, parse_stored_run(run), (), installing)

    does = resume_run(target, scope.namespace, name, install, _warn, budget=asked)
    if not does:
        typer.echo(f"{name} is not suspended; nothing to do ({target.label})")
        return
    typer.echo(f"{name} {does} ({target.label}); follow it: {program()} watch {name}{target.flags}")


def _warn(sentence: str) -> None:
    typer.echo(sentence, err=True)


@on_target
def delete(name: RunName, *, scope: Scope) -> None:
    """Delete a run; if it is running, it is stopped first. Its weights stay."""
    target, place = scope.target, scope.namespace
    existing_run(target, place, name)
    target.delete(place, name)
    typer.echo(f"{name} is deleted ({target.label})")


MAX_NAMESAKES = 1000
GLANCE_SECONDS = 0.2


@on_target
def run(
    file: RunPath,
    *,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return at once.")] = False,
    model: ModelFolder = None,
    scope: Scope,
) -> None:
    """Start a run and follow it to its end. If a run of this name is running, attach; if it is finished, start NAME-2.

    A ConfigMap and an RLEnvironment beside the run in the file are applied first. With suspend: true the run is a
    draft: it is checked, and nothing starts until `rlctl resume NAME`.
    """
    target = scope.target
    given = read_run_file(file, target, scope.asked_namespace, model)
    wanted, place = given.run, given.run.metadata.namespace
    if not scope.asked_namespace and place != target.namespace:  # the file's own
        target.flags += f" -n {place}"
    prepare(target, wanted, given.beside)
    apply_beside(target, given)
    name = submit(target, wanted, place)
    if detach:
        is_draft = wanted.spec.suspend
        says = "is a draft" if is_draft else "runs on its own"
        next_one = f"start it: {program()} resume" if is_draft else f"follow it: {program()} watch"
        typer.echo(f"{name} {says} ({target.label}); {next_one} {name}{target.flags}")
        return
    try:
        _follow_to_end(target, place, name)
    except KeyboardInterrupt:
        _stop_or_detach(target, place, name)


def prepare(target: Target, wanted: TrainingRun, beside: Sequence[Manifest] = ()) -> None:
    """Install what the environment's requirements.txt lists, before anything is applied: the caller sees it fail."""
    if not wanted.spec.suspend and install_requirements(target, wanted, beside, installing):
        typer.echo(f"the requirements.txt of {wanted.spec.environment} is installed ({target.label})", err=True)


def apply_beside(target: Target, given: RunFile) -> None:
    """Apply what the run needs; report what rlctl does not apply."""
    for document in given.beside:
        what = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == RUNTIME_KIND and document is not given.model_runtime:
            typer.echo(f"{what} of the file is left alone: a runtime is an administrator's ({target.label})", err=True)
            continue
        target.apply(document)
        typer.echo(f"{what} is applied ({target.label})", err=True)
    for kind in given.passed_over:
        typer.echo(f"the file also holds {kind} objects: rlctl leaves them alone", err=True)


def submit(target: Target, wanted: TrainingRun, namespace: str) -> str:
    """Create the run, or find the one that is meant. Prints what it did; returns the run's name."""
    name = wanted.metadata.name
    existing = target.run(namespace, name)
    if existing is None:
        try:
            return _create(target, wanted, namespace, name)
        except (ConflictError, NameTakenError):  # someone else has just created it
            if (existing := target.run(namespace, name)) is None:
                raise
    phase = existing.get("status", {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        fresh = _free_name(target, namespace, name)
        typer.echo(f"{name} is over ({phase}), so this is {fresh}", err=True)
        return _create(target, wanted, namespace, fresh)
    if was_restored(existing):
        typer.echo(f"{name} was restored from a backup: it trains from the beginning ({target.label})", err=True)
        target.change_spec(namespace, name, {"suspend": False}, {STARTED_AS_ANNOTATION: None})
    elif "startTime" not in existing.get("status", {}):
        typer.echo(f"{name} is there and has not started: it takes this file's spec ({target.label})", err=True)
        target.change_spec(
            namespace, name, merge_patch(existing["spec"], wanted.to_wire()["spec"]), wanted.metadata.annotations
        )
    elif existing["spec"].get("suspend"):
        typer.echo(f"{name} was stopped: it continues from its last checkpoint ({target.label})", err=True)
        _say_difference(existing, wanted)
        if warning := suspend_warning(existing, suspend=False):
            typer.echo(warning, err=True)
        target.change_spec(namespace, name, {"suspend": False})
    else:
        typer.echo(f"{name} is running: this follows it; its spec stays as it was ({target.label})", err=True)
        _say_difference(existing, wanted)
        target.look_after(namespace, name)
    return name


def _create(target: Target, wanted: TrainingRun, namespace: str, name: str) -> str:
    annotations = {k: v for k, v in wanted.metadata.annotations.items() if k != STARTED_AS_ANNOTATION}
    metadata = wanted.metadata.with_changes(name=name, namespace=namespace, annotations=annotations)
    target.create(authored(wanted.with_changes(metadata=metadata), wanted.to_wire()["spec"]))
    typer.echo(f"{name} is created ({target.label})", err=True)
    return name


def _say_difference(existing: Manifest, wanted: TrainingRun) -> None:
    """What the file sets differently has no effect on a run that has started."""
    was, given = (each.to_wire()["spec"] for each in (parse_stored_run(existing), wanted))
    changes = spec_changes({**was, "suspend": False}, {**given, "suspend": False})
    if changes:
        fields = ", ".join(change.field for change in changes)
        hint = "for these settings, give the file another name"
        typer.echo(f"  the file differs in {fields}, which does not reach it: {hint}", err=True)


def _free_name(target: Target, namespace: str, name: str) -> str:
    for number in range(2, MAX_NAMESAKES):
        fresh = f"{name}-{number}"
        if len(fresh) > MAX_RUN_NAME_LENGTH:
            raise RefusedError(f"{name} is over and {fresh} is too long for a name: delete it, or choose another name")
        if target.run(namespace, fresh) is None:
            return fresh
    raise RefusedError(f"{name} and {MAX_NAMESAKES - 2} runs after it exist; delete some, or choose another name")


def _follow_to_end(target: Target, namespace: str, name: str) -> None:
    with shown(target.label) as show:
        over = follow(target, namespace, name, show)
    code = exit_code(over)
    typer.echo(summary(over, target), err=code is not CommandExit.OK)
    raise typer.Exit(code)


def _stop_or_detach(target: Target, namespace: str, name: str) -> None:
    """The first Ctrl-C asks; a second one, or no terminal to ask on, leaves the run alone."""
    try:
        if sys.stdin.isatty() and _answer("\nStop the run, or detach from it? [stop/detach] (detach): ") == "stop":
            target.change_spec(namespace, name, {"suspend": True})
            _follow_to_end(target, namespace, name)
    except KeyboardInterrupt:
        pass
    run = target.run(namespace, name)
    does = "is asked to stop" if run and run["spec"].get("suspend") else "continues"
    typer.echo(f"{name} {does} ({target.label}); follow it: {program()} watch {name}{target.flags}", err=True)


def _answer(question: str) -> str:
    """A line from the terminal. input() would miss a Ctrl-C that comes just before it begins to wait."""
    typer.echo(question, nl=False)
    while not select.select([sys.stdin], [], [], GLANCE_SECONDS)[0]:
        pass
    return sys.stdin.readline().strip()
