"""Runs side by side: a column for each, and a row for each figure or setting. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.documents.yaml_lines import flow
from rl_operator.experiments.ranking import verdicts
from rl_operator.experiments.run_figures import HeldOut, RunFigures, differing_settings
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.figure_text import duration
from rl_operator.status.text.sentences import cut, sentence

LONGEST_VALUE: Final = 200


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideBySide:
    figures: tuple[ComparisonRow, ...]
    settings: tuple[ComparisonRow, ...]
    verdicts: tuple[str, ...]


def side_by_side_rows(rows: Sequence[RunFigures]) -> SideBySide:
    figures = tuple(ComparisonRow(name, tuple(map(cell, rows))) for name, cell in FIGURES.items())
    differing = differing_settings(rows).items()
    settings = tuple(ComparisonRow(field, tuple(map(_shown, values))) for field, values in differing)
    return SideBySide(figures, settings, tuple(visible(sentence(each.sentence)) for each in verdicts(rows)))


def _figure(figure: HeldOut | None) -> str:
    return figure.text if figure else "–"


def _best(row: RunFigures) -> str:
    return f"{row.best.value:.3f} at step {row.best_step}" if row.best else "–"


def _shown(value: Any) -> str:
    return cut(visible(flow(value)), LONGEST_VALUE)


FIGURES: Final[Mapping[str, Callable[[RunFigures], str]]] = {
    "phase": lambda row: row.phase,
    "step": lambda row: row.steps,
    "reward": lambda row: "–" if row.reward is None else f"{row.reward:.3f}",
    "held-out": lambda row: _figure(row.held_out),
    "held-out before": lambda row: _figure(row.before),
    "best held-out": _best,
    "took": lambda row: "–" if row.seconds is None else duration(row.seconds),
    "attempts": lambda row: str(row.attempts or "–"),
}
