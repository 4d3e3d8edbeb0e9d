"""Runs as they are compared."""

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


def swept(name: str, value: float | None, **values: Any) -> RunFigures:
    """Of a sweep over fields of the trainer."""
    return row(name, value, swept={f"trainer.{field}": each for field, each in values.items()})
