"""Runs as they are compared."""

from collections.abc import Sequence
from typing import Any

from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.experiments.run_figures import RunFigures


def held_out(value: float, half: float | None = 0.03, n: int | None = 500) -> EvaluatedFigure:
    """A figure with an interval of this half width; None: without one."""
    if half is None:
        return EvaluatedFigure(value=value, samples=n)
    return EvaluatedFigure(value=value, low=round(value - half, 4), high=round(value + half, 4), samples=n)


def row(name: str, value: float | None = None, **fields: Any) -> RunFigures:
    """A run that succeeded, with this held-out figure."""
    figure = None if value is None else held_out(value)
    usual = {"phase": "Succeeded", "held_out": figure, "held_out_set": "s", "uid": f"uid-{name}"}
    return RunFigures(name=name, **(usual | fields))


def answering(name: str, rights: Sequence[int], samples: int = 1, **fields: Any) -> RunFigures:
    """How many of the `samples` answers to each held-out item were right, and the figure that this gives."""
    answers = {f"item-{at:04}": (1.0,) * right + (0.0,) * (samples - right) for at, right in enumerate(rights)}
    return row(name, sum(rights) / len(rights) / samples, answers=answers, **fields)


def swept(name: str, value: float | None, **values: Any) -> RunFigures:
    """Of a sweep over fields of the trainer."""
    return row(name, value, swept={f"trainer.{field}": each for field, each in values.items()})
