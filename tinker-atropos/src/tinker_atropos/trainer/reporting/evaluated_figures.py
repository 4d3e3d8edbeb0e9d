"""Which figures of an evaluation a status shows beside the one that decides: pass@k, greedy answers, other sets."""

from collections.abc import Mapping
from typing import Final

from rl_contract.trainer_messages import MOST_FIGURES, EvaluatedFigures, FigureRow

PREFIX: Final = "eval/"
LONGEST_NAME: Final = 64
"""Characters: a set's name has at most 40."""

_OF_OTHERS: Final = ("_low", "_high", "/n")
"""Ends of metrics that belong to a figure."""

_GREEDY: Final = "greedy_"
"""Such a figure has samples of its own, which are not counted."""


def evaluated_figures(step: int, metrics: Mapping[str, float]) -> EvaluatedFigures | None:
    """None if there is only one figure. The main set's come first, then the first one of each other set.

    metrics: as an environment reports them, `eval/pass_at_4`, `eval/SET/percent_correct_low`, `eval/SET/n`, …
    """
    figures = [name for name in metrics if name.startswith(PREFIX) and not name.endswith(_OF_OTHERS)]
    if len(figures) < 2:
        return None
    firsts = {name.rpartition("/")[0]: name for name in reversed(figures)}
    ranked = sorted(figures, key=lambda name: (name.count("/") > 1, firsts[name.rpartition("/")[0]] != name))
    short = [name for name in ranked if len(name) - len(PREFIX) <= LONGEST_NAME]
    rows = tuple(_row(name, metrics) for name in short[:MOST_FIGURES])
    return EvaluatedFigures(step=step, figures=rows, more=len(figures) - len(rows))


def _row(name: str, metrics: Mapping[str, float]) -> FigureRow:
    of_set, _, leaf = name.rpartition("/")
    n = None if leaf.startswith(_GREEDY) else metrics.get(f"{of_set}/n")
    ends = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    return name.removeprefix(PREFIX), metrics[name], *ends, None if n is None else int(n)
