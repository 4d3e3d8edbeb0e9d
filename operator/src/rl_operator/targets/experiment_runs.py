"""The runs of an experiment, from a target: those that are live, and those that are gone, from a ConfigMap's table."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from rl_operator.api.training_run import TrainingRun
from rl_operator.experiments.run_figures import RunFigures, figures_of
from rl_operator.operator_errors import ConflictError, ForbiddenError, RefusedError
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Target

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
    """`rows`: of all its runs. `foreign`: the name of its ConfigMap is taken by somebody else's."""

    name: str
    namespace: str
    rows: tuple[RunFigures, ...]
    foreign: bool = False


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
