"""The table of an experiment, as a ConfigMap keeps it: also the rows of runs that are gone. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from rl_operator.api.names import COMPONENT_LABEL, EXPERIMENT_LABEL, MANAGED_BY_LABEL
from rl_operator.experiments.run_figures import RunFigures

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


def _read(stored: Any) -> RunFigures | None:
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


def record_config_map(
    experiment: str, namespace: str, rows: Sequence[RunFigures], *, version: str = ""
) -> dict[str, Any]:
    """The ConfigMap with as many of them as fit: of the runs that are gone, the oldest are left out first. `version`:
    the resourceVersion that it replaces.
    """
    metadata = {
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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RUNS_KEY: _text(_kept(rows))}}


def _kept(rows: Sequence[RunFigures]) -> list[str]:
    """Each as JSON, newest first."""
    kept, size = list[str](), 0
    for row in sorted(rows, key=lambda row: (not row.gone, row.created), reverse=True)[:MAX_ROWS]:
        line = _line(row)
        size += len(line.encode()) + 2
        if size > MAX_BYTES:
            break
        kept.append(line)
    return kept


def _line(row: RunFigures) -> str:
    said = row.with_changes(gone=False, message=row.message[:MAX_MESSAGE]).kept
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def _text(lines: Sequence[str]) -> str:
    """One run a line: two versions of it compare well."""
    return "[\n" + ",\n".join(lines) + "\n]\n"
