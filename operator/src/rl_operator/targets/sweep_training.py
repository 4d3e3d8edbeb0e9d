"""The runs of a sweep at a target: all are checked before one is created, and a few at a time are trained."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import EXPERIMENT_LABEL
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.run_check import check_run, runtime_not_found
from rl_operator.documents.parse import parse_stored_run
from rl_operator.experiments.grid import belongs_to_trainer
from rl_operator.operator_errors import GoneError, OperatorError, RefusedError
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs, authored
from rl_operator.targets.runs.spec_changes import spec_changes
from rl_operator.targets.target import CARE_SECONDS, Note, Target


@dataclass(frozen=True)
class RefusedRuns:
    """One refusal, and the names of the runs that it is about."""

    refusal: Refusal
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        first, *rest = self.names
        trainer = belongs_to_trainer([self.refusal.field]) if self.refusal.code == "UnknownField" else ""
        return f"{self.refusal.sentence}{trainer} ({first}{f' and {len(rest)} more' if rest else ''})"


def check_runs(file: RunFile, runs: Sequence[TrainingRun], target: Target) -> tuple[RefusedRuns, ...]:
    """What would be refused; runs that share a fault share an entry. What a run is checked against is read once."""
    found: dict[str, tuple[Refusal, list[str]]] = {}
    for run, refusals in _checked(file, runs, target):
        for refusal in refusals:
            found.setdefault(refusal.sentence, (refusal, []))[1].append(run.metadata.name)
    return tuple(RefusedRuns(refusal, tuple(names)) for refusal, names in found.values())


def _checked(
    file: RunFile, runs: Sequence[TrainingRun], target: Target
) -> Iterator[tuple[TrainingRun, tuple[Refusal, ...]]]:
    source = FileInputs(target, file.beside)
    known: dict[tuple[str, str, str], RunInputs | None] = {}
    for each in runs:
        run = as_it_runs(replace(file, run=each), target).run
        key = run.spec.runtime, run.spec.environment, repr(run.spec.start_from)
        if key not in known:
            known[key] = inputs_of(run, source)
        inputs = known[key]
        if inputs is None:
            yield run, (runtime_not_found(run, source.runtime_names()),)
        else:
            yield run, tuple(check_run(run, inputs))


def is_over(run: TrainingRun | None) -> bool:
    return run is None or run.at_rest


def has_failed(run: TrainingRun | None) -> bool:
    """Whether a run that is over did not succeed: failed, refused, or deleted."""
    return run is None or run.is_refused or run.status.phase == "Failed"


Over = Callable[[str, TrainingRun | None], None]
"""Is told of each run that is over, by its name; None: it was deleted."""


def runs_to_create(target: Target, runs: Sequence[TrainingRun], *, go_on: bool) -> list[TrainingRun]:
    """Those that do not exist yet. Raises RefusedError if a name is taken; with `go_on`, by a run that is not of this
    sweep.
    """
    return [run for run in runs if not _is_there(run, target, go_on=go_on)]


def _is_there(run: TrainingRun, target: Target, *, go_on: bool) -> bool:
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


def _difference(existing: Manifest, run: TrainingRun) -> str:
    """Empty if it is the same run of the same experiment, started or not."""
    wanted = run.metadata.labels[EXPERIMENT_LABEL]
    label = existing["metadata"].get("labels", {}).get(EXPERIMENT_LABEL)
    if label != wanted:
        return f"its label {EXPERIMENT_LABEL} is {label!r} instead of {wanted!r}"
    was, given = (each.to_wire()["spec"] for each in (parse_stored_run(existing), run))
    changes = spec_changes({**was, "suspend": False}, {**given, "suspend": False})
    return ", ".join(f"{change.field} is {change.before} there and {change.after} here" for change in changes)


def count_active(target: Target, runs: Sequence[TrainingRun]) -> int:
    """How many exist and train, or are about to."""
    found = (parse_stored_run(existing) for run in runs if (existing := target.run(*run.key)) is not None)
    return sum(not (run.at_rest or run.spec.suspend) for run in found)


def create_runs(target: Target, runs: Sequence[TrainingRun], free: int, size: int, say: Note) -> None:
    """The first `free` of them start; the others are drafts until it is their turn. `size`: of the whole sweep."""
    for number, run in enumerate(runs):
        wanted = run if number < free else run.with_changes(spec=run.spec.with_changes(suspend=True))
        try:
            target.create(authored(wanted, wanted.to_wire()["spec"]))
        except OperatorError:
            if number:
                say(f"{number} of {size} runs are created, and no more: see below; --continue goes on")
            raise


def train_all(target: Target, namespace: str, names: Sequence[str], at_once: int, over: Over) -> bool:
    """Until all are over: `at_once` of them train at the same time; as one ends, the next draft starts. Blocks.

    Returns whether one failed, was refused or was deleted.
    """
    found = {name: _read(target, namespace, name) for name in names}
    drafts = deque(name for name, run in found.items() if run is not None and run.is_draft)  # not what somebody stopped
    active = [name for name in names if name not in drafts]
    failed, cared = False, time.monotonic()
    while active or drafts:
        for name in [*active]:
            run = _read(target, namespace, name)
            if is_over(run):
                active.remove(name)
                failed = failed or has_failed(run)
                over(name, run)
        while drafts and len(active) < at_once:
            active.append(drafts.popleft())
            with contextlib.suppress(GoneError):  # it was deleted: the next look says so
                target.change_spec(namespace, active[-1], {"suspend": False})
        if time.monotonic() - cared > CARE_SECONDS:
            cared = time.monotonic()
            for name in active:
                target.look_after(namespace, name)
        time.sleep(target.poll_seconds)
    return failed


def _read(target: Target, namespace: str, name: str) -> TrainingRun | None:
    """None: it was deleted."""
    manifest = target.run(namespace, name)
    return TrainingRun.model_validate(manifest) if manifest is not None else None
