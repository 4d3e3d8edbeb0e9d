"""The curves of runs, read from their files as these grow, and kept for the next question."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import GoneError, OperatorError, PodNeededError
from rl_operator.rollouts.metrics_history import MetricsHistory, metrics_files
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.targets.runs.run_lookup import kept_points
from rl_operator.targets.target import Target
from rl_operator.ui.views.curve_table import CHARTS, OF_EVALUATION, OF_STEP, kept_tables

MOST_RUNS: Final = 16
"""Whose curves are in memory: up to 2 MB each."""

EVERYTHING: Final = -1
"""As the newest step that a page knows: it knows none."""

FEWER: Final = "Only the kept history is shown, at most 500 points of reward, held-out, loss and staleness"


class RunCurves:
    """Of one run. One thread at a time reads its files."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.history = MetricsHistory(OF_STEP, OF_EVALUATION)

    def read(self, source: RolloutSource) -> bool:
        """What was added since. Returns whether there are any files. May raise OperatorErrors."""
        listing = source.listing()
        for attempt, name, begin in self.history.unread(listing):
            try:
                self.history.add(attempt, source.content(name, begin), begin)
            except GoneError:
                continue  # it was removed meanwhile, with its run, or became shorter
        return bool(metrics_files(listing))


class CurveCache:
    """Of the runs that were looked at last. Who may not list a run's files gets nothing of what others have read."""

    def __init__(self, most: int = MOST_RUNS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, RunCurves] = OrderedDict()

    def of(self, uid: str) -> RunCurves:
        with self._lock:
            curves = self._runs.setdefault(uid, RunCurves())
            self._runs.move_to_end(uid)
            while len(self._runs) > self._most:
                self._runs.popitem(last=False)
            return curves

    def points(
        self, target: Target, run: TrainingRun, after: int, attempt: int, *, at_any_cost: bool = False
    ) -> dict[str, Any]:
        """The columns of all charts, of steps after `after`. A page that knows another attempt than the newest one gets
        all of them, as `whole` says: steps that it knows may be lost. `at_any_cost`: even if a pod must be started for
        it; without, `costly` says that there may be more.
        """
        if run.status.start_time is None:
            return _of_kept(target, run, _without_files(run))
        try:
            source = target.rollouts(run, may_start=at_any_cost)
            curves = self.of(run.metadata.uid)
            with curves.lock:
                if curves.read(source):
                    return _of_history(curves.history, run, after, attempt)
        except OperatorError as error:
            return {**_of_kept(target, run, f"{FEWER}: {error}"), "costly": isinstance(error, PodNeededError)}
        return _of_kept(target, run, _without_files(run))


def _of_history(history: MetricsHistory, run: TrainingRun, after: int, attempt: int) -> dict[str, Any]:
    whole = after < 0 or attempt != history.attempt
    steps, times, columns = history.steps.columns(EVERYTHING if whole else after)
    evaluated, when, figures = history.evaluations.columns(EVERYTHING)
    faults = f"{history.faults} lines of metrics could not be read and are missing" if history.faults else ""
    tables = {
        "steps": _table(steps, times, columns),
        "evaluations": _table(evaluated, when, {**figures, "baseline": baseline(run, evaluated, figures)}),
    }
    return _answer(tables, history.attempt, faults, whole=whole)


def _of_kept(target: Target, run: TrainingRun, note: str) -> dict[str, Any]:
    points = kept_points(run, target)
    sampled = [{"step": each.step, "rewardMean": each.reward_mean} for each in run.status.history]
    tables = {name: _table(*table) for name, table in kept_tables(points or sampled).items()}
    figures = tables["evaluations"]["columns"]
    figures["baseline"] = baseline(run, tables["evaluations"]["step"], figures)
    return _answer(tables, 0, note, whole=True)


def _without_files(run: TrainingRun) -> str:
    if run.status.start_time is None:
        return "There are no curves yet: the run has not started"
    if not run.status.finished and (run.status.progress is None or run.status.progress.step == 0):
        return "There are no curves yet: no step is trained"
    return (
        f"{FEWER}: the run has no files of metrics. It was trained by an older version, or its tinker.keep_rollouts_mb "
        "is 0"
    )


def baseline(run: TrainingRun, steps: Sequence[int], figures: Mapping[str, Sequence[float]]) -> list[float | None]:
    """The figure before training, at each evaluation."""
    metrics = run.status.metrics
    value = metrics.baseline_accuracy if metrics else None
    if value is None and steps and steps[0] == 0:
        value = figures["held_out"][0]
    return [value] * len(steps)


def _table(steps: list[int], times: list[float], columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    return {"step": steps, "time": times, "columns": dict(columns)}


def _answer(tables: Mapping[str, Any], attempt: int, note: str, *, whole: bool) -> dict[str, Any]:
    charts = {"charts": [chart.to_wire() for chart in CHARTS]} if whole else {}
    return {"attempt": attempt, "whole": whole, "costly": False, "note": note, "tables": tables, **charts}
