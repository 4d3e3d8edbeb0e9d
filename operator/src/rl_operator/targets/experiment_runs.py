"""The runs of an experiment: the table that outlives them, in a ConfigMap, and how a sweep makes them. All are checked
before one is created, and a few at a time are trained.
"""

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from rl_operator.api.kubernetes_objects import Manifest, ManifestMetadata
from rl_operator.api.names import (
    COMPONENT_LABEL,
    EXPERIMENT_LABEL,
    MANAGED_BY_LABEL,
    MAX_RUN_NAME_LENGTH,
    RUN_NAME_PATTERN,
)
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.run_check import check_run, runtime_not_found
from rl_operator.documents.parse import parse_stored_run
from rl_operator.experiments.grid import belongs_to_trainer
from rl_operator.experiments.ranking import decisive
from rl_operator.experiments.run_figures import RunFigures, figures_of
from rl_operator.operator_errors import ConflictError, ForbiddenError, GoneError, OperatorError, RefusedError
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs, authored
from rl_operator.targets.runs.held_out_answers import with_answers
from rl_operator.targets.runs.spec_changes import spec_changes
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import CARE_SECONDS, Note, Target

COMPONENT: Final = "experiment"
RUNS_KEY: Final = "runs.json"
MAX_ROWS: Final = 1_000
MAX_BYTES: Final = 900_000
"""A ConfigMap is limited to 1 MiB in total."""

MAX_MESSAGE: Final = 200
WRITER: Final = "rlctl"


def record_name(experiment: str) -> str:
    return f"experiment-{experiment}"


def is_record(config_map: Mapping[str, Any], experiment: str) -> bool:
    """Whether a ConfigMap of that name is ours: by its labels."""
    labels = config_map["metadata"].get("labels") or {}
    return labels.get(COMPONENT_LABEL) == COMPONENT and labels.get(EXPERIMENT_LABEL) == experiment


def stored_rows(config_map: Mapping[str, Any]) -> tuple[RunFigures, ...]:
    """What it holds; a row that is damaged, or that a newer version wrote in another form, is left out."""
    try:
        found = json.loads((config_map.get("data") or {}).get(RUNS_KEY, "[]"))
    except ValueError:
        return ()
    return tuple(row for each in (found if isinstance(found, list) else ()) if (row := _read(each)) is not None)


def _read(stored: object) -> RunFigures | None:
    try:
        return RunFigures.model_validate(stored)
    except ValidationError:
        return None


def united(live: Sequence[RunFigures], stored: Sequence[RunFigures]) -> tuple[RunFigures, ...]:
    """All that are live, and those that were stored and are gone, which are marked. By uid: another run may have the
    name of one that was deleted.
    """
    uids = {row.uid for row in live}
    return (*live, *(row.with_changes(gone=True) for row in stored if row.uid not in uids))


def record_config_map(experiment: str, namespace: str, rows: Sequence[RunFigures], *, version: str = "") -> Manifest:
    """The ConfigMap with as many of them as fit: of the runs that are gone, the oldest are left out first. `version`:
    the resourceVersion that it replaces.
    """
    metadata: ManifestMetadata = {
        "name": record_name(experiment),
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/part-of": "rl-operator",
            COMPONENT_LABEL: COMPONENT,
            MANAGED_BY_LABEL: WRITER,
            EXPERIMENT_LABEL: experiment,
        },
        **({"resourceVersion": version} if version else {}),
    }
    text = "[\n" + ",\n".join(_kept(rows)) + "\n]\n"  # one run a line: two versions of it compare well
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RUNS_KEY: text}}


def _kept(rows: Sequence[RunFigures]) -> list[str]:
    """Each as JSON, newest first."""
    kept, size = list[str](), 0
    for row in sorted(rows, key=lambda row: (not row.gone, row.created), reverse=True)[:MAX_ROWS]:
        said = row.with_changes(gone=False, message=row.message[:MAX_MESSAGE]).kept
        line = json.dumps(said, separators=(",", ":"), ensure_ascii=False)
        size += len(line.encode()) + 2
        if size > MAX_BYTES:
            break
        kept.append(line)
    return kept


TRIES = 3
"""To store a table that someone else stores at the same time."""


@dataclass(frozen=True)
class Experiment:
    """`rows`: of all its runs; `runs`: those that exist. `foreign`: the name of its ConfigMap is taken by somebody
    else's.
    """

    name: str
    namespace: str
    rows: tuple[RunFigures, ...]
    runs: tuple[TrainingRun, ...] = ()
    foreign: bool = False

    def answered(self, target: Target) -> tuple[RunFigures, ...]:
        """The rows, with the answers of those that its conclusions rest on."""
        wanted = decisive(self.rows)
        return with_answers(target, self.rows, [run for run in self.runs if run.metadata.uid in wanted])


def selector_of(experiment: str) -> str:
    return f"{EXPERIMENT_LABEL}={require_label(experiment)}"


def require_label(experiment: str) -> str:
    """Raises RefusedError for what cannot be a label's value, or the beginning of its runs' names."""
    if len(experiment) > MAX_RUN_NAME_LENGTH or not re.fullmatch(RUN_NAME_PATTERN, experiment):
        raise RefusedError(
            f"the experiment's name is {experiment!r}: it must have at most {MAX_RUN_NAME_LENGTH} of a-z, 0-9 and '-', "
            "a letter first"
        )
    return experiment


def figures(target: Target, runs: Iterable[TrainingRun]) -> tuple[RunFigures, ...]:
    """What is compared of these runs."""
    settings, now = TrainedSettings(target), datetime.now(UTC)
    return tuple(figures_of(run, settings.of(run), now) for run in runs)


def read_experiment(target: Target, namespace: str, name: str) -> Experiment:
    """Raises RefusedError if there is nothing: no run with its label, and no table."""
    runs = [TrainingRun.model_validate(run) for run in target.runs(namespace, selector_of(name))]
    for run in runs:
        target.look_after(*run.key)
    live = figures(target, runs)
    record = _record(target, namespace, name)
    foreign = record is not None and not is_record(record, name)
    stored = stored_rows(record) if record is not None and not foreign else ()
    if not live and not stored:
        raise RefusedError(
            f"there is no experiment {name!r} in namespace {namespace} of {target.label}: no run has the label "
            f"{EXPERIMENT_LABEL}={name}, and no ConfigMap {record_name(name)} keeps its table"
        )
    return Experiment(name, namespace, united(live, stored), tuple(runs), foreign)


def require_own_record(target: Target, namespace: str, name: str) -> None:
    """Raises RefusedError if something else has the name of the experiment's ConfigMap."""
    record = _record(target, namespace, name)
    if record is not None and not is_record(record, name):
        raise RefusedError(foreign_record(namespace, name))


def foreign_record(namespace: str, name: str) -> str:
    return (
        f"ConfigMap {namespace}/{record_name(name)} is not the table of an experiment (it has no label "
        f"{EXPERIMENT_LABEL}={name}), and is left alone: choose another name for the experiment"
    )


def keep(target: Target, experiment: Experiment) -> str:
    """Store the table. Returns why it is not kept; empty if it is."""
    if experiment.foreign:
        return f"the table is not kept: {foreign_record(experiment.namespace, experiment.name)}"
    try:
        _store(target, experiment.namespace, experiment.name, experiment.rows)
    except ForbiddenError as error:
        return f"the table is not kept, so it ends with its runs: {error}"
    except ConflictError as error:
        return f"the table is not kept this time: {error}"
    return ""


def _store(target: Target, namespace: str, name: str, rows: Sequence[RunFigures]) -> None:
    """What someone else stored meanwhile is kept, too."""
    for left in reversed(range(TRIES)):
        record = target.read("ConfigMap", namespace, record_name(name))
        stored = stored_rows(record) if record is not None else ()
        version = record["metadata"].get("resourceVersion", "") if record is not None else ""
        every = (*rows, *(row for row in stored if row.uid not in {each.uid for each in rows}))
        wanted = record_config_map(name, namespace, every, version=version)
        if record is not None and record.get("data") == wanted["data"]:
            return
        try:
            target.apply(wanted)
        except ConflictError:
            if not left:
                raise
        else:
            return


def _record(target: Target, namespace: str, name: str) -> Manifest | None:
    try:
        return target.read("ConfigMap", namespace, record_name(name))
    except ForbiddenError as error:
        target.note(f"only runs that exist are shown: {error}")
        return None


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
    found = {name: _run(target, namespace, name) for name in names}
    drafts = deque(name for name, run in found.items() if run is not None and run.is_draft)  # not what somebody stopped
    active = [name for name in names if name not in drafts]
    failed, cared = False, time.monotonic()
    while active or drafts:
        for name in [*active]:
            run = _run(target, namespace, name)
            if is_over(run):
                active.remove(name)
                failed = failed or run is None or run.is_refused or run.status.phase == "Failed"
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


def _run(target: Target, namespace: str, name: str) -> TrainingRun | None:
    """None: it was deleted."""
    manifest = target.run(namespace, name)
    return TrainingRun.model_validate(manifest) if manifest is not None else None
