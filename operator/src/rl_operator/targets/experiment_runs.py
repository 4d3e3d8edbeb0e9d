"""The runs of an experiment, from a target: those that are live, and the table of those that are gone."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rl_operator.api.names import EXPERIMENT_LABEL, MAX_RUN_NAME_LENGTH, RUN_NAME_PATTERN
from rl_operator.api.training_run import TrainingRun
from rl_operator.experiments.experiment_record import (
    is_record,
    record_config_map,
    record_name,
    stored_rows,
    united,
)
from rl_operator.experiments.run_figures import RunFigures, figures_of
from rl_operator.operator_errors import ConflictError, ForbiddenError, RefusedError
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Manifest, Target

LONGEST_NAME = MAX_RUN_NAME_LENGTH
"""The names of its runs begin with it."""

TRIES = 3
"""To store a table that someone else stores at the same time."""


@dataclass(frozen=True)
class Experiment:
    """`rows`: of all its runs. `foreign`: the name of its ConfigMap is taken by somebody else's."""

    name: str
    namespace: str
    rows: tuple[RunFigures, ...]
    foreign: bool = False


def selector_of(experiment: str) -> str:
    return f"{EXPERIMENT_LABEL}={require_label(experiment)}"


def require_label(experiment: str) -> str:
    """Raises RefusedError for what cannot be a label's value or a part of a ConfigMap's name."""
    if len(experiment) > LONGEST_NAME or not re.fullmatch(RUN_NAME_PATTERN, experiment):
        raise RefusedError(
            f"the experiment's name is {experiment!r}: it must have at most {LONGEST_NAME} of a-z, 0-9 and '-', "
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
    return Experiment(name, namespace, united(live, stored), foreign)


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
