"""The list of runs: which, in which order, and what each row says.

Rows are kept by the version of the run: a list of a thousand runs is read once, and then what changed.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import EXPERIMENT_LABEL
from rl_operator.operator_errors import ForbiddenError
from rl_operator.targets.target import Target

ATTENTION: Final = ("Failed", "Pending", "Stopping", "Starting", "Running", "Draft", "Stopped", "Succeeded")
"""Phases, those that need attention first."""

NEEDS_ATTENTION: Final = "attention"
MOST_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class RunFilter:
    """As the address of the page has it. Empty: all."""

    phase: str = ""
    environment: str = ""
    experiment: str = ""
    text: str = ""
    namespace: str = ""

    @classmethod
    def of_query(cls, query: Mapping[str, str]) -> "RunFilter":
        return cls(**{name: query.get(name, "").strip()[:200] for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class RunRow:
    """`version` changes whenever the row may. `trouble`: it failed, was refused, or is in trouble: somebody must do
    something. `rewards` are at most ten samples; figures are None where unknown.
    """

    namespace: str
    name: str
    version: str
    phase: str
    trouble: bool
    sentence: str
    environment: str
    experiment: str
    step: int | None
    total_steps: int | None
    rewards: tuple[float, ...]
    reward: float | None
    before: float | None
    now: float | None
    created: str

    def age_seconds(self, now: datetime) -> float:
        return (now - datetime.fromisoformat(self.created)).total_seconds() if self.created else 0.0


def filtered(rows: Iterable[RunRow], chosen: RunFilter) -> list[RunRow]:
    return [row for row in rows if _fits(row, chosen)]


def in_order(rows: Iterable[RunRow]) -> list[RunRow]:
    """What needs attention first; of equals, the newest first."""
    newest_first = sorted(rows, key=lambda row: row.created, reverse=True)
    return sorted(newest_first, key=lambda row: (not row.trouble, _rank(row.phase)))


def run_row(run: Manifest) -> RunRow:
    metadata, status = run["metadata"], run.get("status") or {}
    metrics, progress = status.get("metrics") or {}, status.get("progress") or {}
    phase = str(status.get("phase") or "Pending")
    return RunRow(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        version=f"{metadata['uid']}/{metadata['resourceVersion']}",
        phase=phase,
        trouble=phase == "Failed" or _is_stalled(status),
        sentence=str(status.get("message") or ""),
        environment=str(run["spec"]["environment"]),
        experiment=str((metadata.get("labels") or {}).get(EXPERIMENT_LABEL, "")),
        step=progress.get("step"),
        total_steps=progress.get("totalSteps"),
        rewards=tuple(float(each["rolloutReward"]) for each in status.get("history", ()) if "rolloutReward" in each),
        reward=metrics.get("rolloutReward"),
        before=(metrics.get("baseline") or {}).get("value"),
        now=(metrics.get("heldOut") or {}).get("value"),
        created=str(metadata.get("creationTimestamp", "")),
    )


def spark_points(values: Sequence[float], width: int, height: int) -> str:
    """The points of an SVG polyline: the lowest and the highest value set the scale."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    scale = (height - 2) / (high - low) if high > low else 0.0
    step = width / (len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{height - 1 - (value - low) * scale:.1f}" for index, value in enumerate(values)
    )


def _is_stalled(status: Mapping[str, Any]) -> bool:
    return any((each.get("type"), each.get("status")) == ("Stalled", "True") for each in status.get("conditions", ()))


def _rank(phase: str) -> int:
    return ATTENTION.index(phase) if phase in ATTENTION else len(ATTENTION)


def _fits(row: RunRow, chosen: RunFilter) -> bool:
    of_phase = row.trouble if chosen.phase == NEEDS_ATTENTION else row.phase == chosen.phase
    alike = all(
        getattr(chosen, name) in ("", getattr(row, name)) for name in ("namespace", "environment", "experiment")
    )
    return (not chosen.phase or of_phase) and alike and chosen.text.lower() in f"{row.name} {row.sentence}".lower()


MOST_ROWS_KEPT: Final = 20_000
"""2 KiB each."""

MOST_READ_SINGLY: Final = 20
"""More are read with all others: that is one call."""

MOST_AT_ONCE: Final = 4
"""Lists that are read. Each is 5 MiB of a thousand runs, and they all wait for the same target."""

Version = tuple[str, str, str]
"""Namespace, name, and what changes whenever the run does."""


class RowCache:
    """The rows of one target, whoever asks. Rows are for those who may list their runs: which these are is asked each
    time.
    """

    def __init__(self, most: int = MOST_ROWS_KEPT) -> None:
        self._most = most
        self._rows: OrderedDict[Version, RunRow] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.BoundedSemaphore(MOST_AT_ONCE)

    def of(self, target: Target, namespace: str | None) -> list[RunRow]:
        """The runs of a namespace; None: of all. Blocks. Raises OperatorErrors."""
        with self._reading:
            keys = [(*key, version) for key, version in target.run_versions(namespace).items()]
            found = self._known(keys)
            missing = [key for key in keys if key not in found]
            found |= self._read(target, namespace, missing)
        return list(found.values())

    def _read(self, target: Target, namespace: str | None, missing: list[Version]) -> dict[Version, RunRow]:
        if not missing:
            return {}
        runs = _singly(target, missing) if len(missing) <= MOST_READ_SINGLY else None
        listed = target.runs(namespace, "") if runs is None else runs
        rows = {(row.namespace, row.name): row for row in map(run_row, listed)}
        read = {key: rows[key[:2]] for key in missing if key[:2] in rows}  # the others were deleted since
        self._keep(read)
        return read

    def _known(self, keys: list[Version]) -> dict[Version, RunRow]:
        with self._lock:
            found = {key: row for key in keys if (row := self._rows.get(key)) is not None}
            for key in found:
                self._rows.move_to_end(key)
        return found

    def _keep(self, rows: dict[Version, RunRow]) -> None:
        with self._lock:
            self._rows |= rows
            while len(self._rows) > self._most:
                self._rows.popitem(last=False)


def _singly(target: Target, missing: list[Version]) -> list[Manifest] | None:
    """None: the caller may only list them."""
    try:
        return [run for namespace, name, _ in missing if (run := target.run(namespace, name)) is not None]
    except ForbiddenError:
        return None
