"""Runs side by side: a column for each, and a row for each figure or setting. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.documents.yaml_lines import flow
from rl_operator.experiments.comparison import Comparison
from rl_operator.experiments.ranking import verdicts
from rl_operator.experiments.run_figures import RunFigures, differing_settings
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut
from rl_operator.targets.runs.run_text import compared_figures

LONGEST_VALUE: Final = 200
UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideBySide:
    figures: tuple[ComparisonRow, ...]
    settings: tuple[ComparisonRow, ...]
    verdicts: tuple[str, ...]
    """One that begins with the name of a run begins with a small letter: names have no others."""


def side_by_side_rows(rows: Sequence[RunFigures]) -> SideBySide:
    told = [compared_figures(row, UNKNOWN) for row in rows]
    figures = tuple(ComparisonRow(name, tuple(each[name] for each in told)) for name in (told[0] if told else ()))
    differing = differing_settings(rows).items()
    settings = tuple(ComparisonRow(field, tuple(map(_shown, values))) for field, values in differing)
    return SideBySide(figures, settings, tuple(map(_sentence, verdicts(rows))))


def _sentence(verdict: Comparison) -> str:
    said = visible(verdict.sentence)
    return f"{said if verdict.sentence.startswith(verdict.runs) else said[:1].upper() + said[1:]}."


def _shown(value: Any) -> str:
    return cut(visible(flow(value)), LONGEST_VALUE)
