"""The list of runs: which, in which order, and what each row says. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rl_operator.api.names import EXPERIMENT_LABEL

Manifest = Mapping[str, Any]

ATTENTION: Final = ("Failed", "Pending", "Stopping", "Starting", "Running", "Stopped", "Succeeded")
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
        rewards=tuple(float(each["rewardMean"]) for each in status.get("history", ()) if "rewardMean" in each),
        reward=metrics.get("rewardMean"),
        before=metrics.get("baselineAccuracy"),
        now=metrics.get("evalAccuracy"),
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
    return (
        (not chosen.phase or of_phase)
        and (not chosen.namespace or row.namespace == chosen.namespace)
        and (not chosen.environment or row.environment == chosen.environment)
        and (not chosen.experiment or row.experiment == chosen.experiment)
        and (not chosen.text or chosen.text.lower() in f"{row.name} {row.sentence}".lower())
    )
