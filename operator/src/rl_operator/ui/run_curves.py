"""The curves of runs: what each is computed from and how charts show it; read from files as these grow, and kept for
the next question.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rl_contract.status_metrics import HELD_OUT_METRIC
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import GoneError, OperatorError, PodNeededError
from rl_operator.rollouts.metrics_history import NOT_KNOWN, Figures, Metrics, MetricsHistory, metrics_files
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.targets.runs.run_lookup import kept_points
from rl_operator.targets.target import Target

Figure = Callable[[Metrics], float | None]


def _of(name: str) -> Figure:
    return lambda metrics: metrics.get(name)


def _beside_mean(sign: int, bound: str) -> Figure:
    """One standard deviation from the mean reward, and not past the lowest or highest one."""

    def figure(metrics: Metrics) -> float | None:
        mean, deviation, limit = metrics.get("reward/mean"), metrics.get("reward/std"), metrics.get(bound)
        if mean is None or deviation is None:
            return None
        far = mean + sign * deviation
        return far if limit is None else max(far, limit) if sign < 0 else min(far, limit)

    return figure


def _held_out(ending: str = "") -> Figure:
    """Its name may have a prefix: that of one of several environments."""
    name = HELD_OUT_METRIC + ending

    def figure(metrics: Metrics) -> float | None:
        if name in metrics:
            return metrics[name]
        return next((value for key, value in metrics.items() if key.endswith(f"_{name}")), None)

    return figure


SECONDS: Final = {
    "waiting": "waiting for rollouts",
    "forward_backward": "gradient",
    "optim_step": "optimizer step",
    "snapshot": "new sampler",
    "preparing": "preparing",
    "reporting": "reporting",
    "saving": "checkpoint",
}
"""Parts of a step, `time/…`, from bottom to top."""

GROUP_MIX: Final = {"all_right": "all right", "mixed": "mixed", "all_wrong": "all wrong"}
"""Of an environment's groups, from bottom to top."""

ITEMS: Final = {"trained": "trained", "dropped": "dropped", "under_way": "under way"}
"""Of the items seen, from bottom to top."""

OF_STEP: Final[Figures] = {
    "batch_reward": _of("reward/mean"),
    "batch_reward_low": _beside_mean(-1, "reward/min"),
    "batch_reward_high": _beside_mean(1, "reward/max"),
    "rollout_reward": _of("env/reward_mean"),
    "loss": _of("train/loss"),
    "kl": _of("logprobs/kl_v2"),
    "kl_stale": _of("logprobs/kl_v2_stale"),
    "ess": _of("logprobs/ess"),
    "ess_stale": _of("logprobs/ess_stale"),
    "staleness": _of("staleness/mean"),
    "staleness_max": _of("staleness/max"),
    "staleness_allowed": _of("staleness/allowed"),
    "clipped": _of("batch/clipped_fraction"),
    "cost": _of("cost/total"),
    "entropy": _of("train/entropy"),
    "length": _of("length/mean"),
    "length_right": _of("length/right"),
    "length_wrong": _of("length/wrong"),
    "grad_norm": _of("train/grad_norm"),
    **{f"items_{part}": _of(f"items/{part}") for part in ITEMS},
    **{mix: _of(f"groups/{mix}") for mix in GROUP_MIX},
    **{part: _of(f"time/{part}") for part in SECONDS},
}

OF_EVALUATION: Final[Figures] = {
    "held_out": _held_out(),
    "held_out_low": _held_out("_low"),
    "held_out_high": _held_out("_high"),
}

Table = Literal["steps", "evaluations"]


@dataclass(frozen=True, slots=True)
class Line:
    """`low` and `high`: the columns of its band. `dash`: lengths of strokes and gaps; empty: solid."""

    column: str
    label: str
    dash: tuple[int, ...] = ()
    low: str = ""
    high: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    unit: str
    meaning: str
    lines: tuple[Line, ...]
    table: Table = "steps"
    stacked: bool = False


DASHED: Final = (7, 4)
DOTTED: Final = (2, 3)

CHARTS: Final = (
    Chart(
        "reward", "Reward", "reward",
        "Batch reward: mean over the trained batch, most of it from groups whose rewards differ. Its band is one "
        "standard deviation, within the lowest and the highest reward. Rollout reward: mean over all scored rollouts.",
        (
            Line("batch_reward", "batch reward", (), "batch_reward_low", "batch_reward_high"),
            Line("rollout_reward", "rollout reward", DASHED),
        ),
    ),
    Chart(
        "held-out", "Held-out", "fraction",
        "On items that are never trained on. The band is the 95 % interval; the dotted line is the figure before "
        "training.",
        (Line("held_out", "now", (), "held_out_low", "held_out_high"), Line("baseline", "before training", DOTTED)),
        table="evaluations",
    ),
    Chart(
        "loss", "Loss", "per trained token",
        "The sum over all trained tokens, divided by their number. It need not fall.",
        (Line("loss", "loss"),),
    ),
    Chart(
        "kl", "KL of sampler and trainer", "nats per token",
        "Between the probabilities at sampling and at training. Fresh tokens should be near 0; for those of older "
        "weights it grows with staleness.",
        (Line("kl", "fresh tokens"), Line("kl_stale", "of older weights", DASHED)),
    ),
    Chart(
        "ess", "Effective sample size", "fraction",
        "1 if sampler and trainer agree; the smaller, the fewer tokens carry the step.",
        (Line("ess", "fresh tokens"), Line("ess_stale", "of older weights", DASHED)),
    ),
    Chart(
        "staleness", "Staleness", "policy steps",
        "Steps between the weights that sampled a token and those that are trained with it. Allowed: how old rollouts "
        "may become, by trainer.min_ess.",
        (
            Line("staleness_max", "oldest", DASHED),
            Line("staleness", "mean"),
            Line("staleness_allowed", "allowed", DOTTED),
        ),
    ),
    Chart(
        "clipped", "Clipped", "fraction",
        "Of the trained tokens: clipped by the loss function.",
        (Line("clipped", "clipped"),),
    ),
    Chart(
        "entropy", "Entropy", "nats per token",
        "Estimated by minus the mean log probability of sampled tokens. Near 0 the policy explores nothing.",
        (Line("entropy", "entropy"),),
    ),
    Chart(
        "length", "Length", "tokens",
        "Tokens that were generated for a rollout. Right: with a score of at least 1.",
        (
            Line("length", "mean"),
            Line("length_right", "right", DASHED),
            Line("length_wrong", "wrong", DOTTED),
        ),
    ),
    Chart(
        "groups", "Groups", "fraction",
        "Of the last 100 that were made, whether or not they were trained. Mixed ones teach most: many that are all "
        "right or all wrong are too easy or too hard.",
        tuple(Line(mix, words) for mix, words in GROUP_MIX.items()),
        stacked=True,
    ),
    Chart(
        "items", "Items", "items",
        "What became of the items that the run was dealt so far, all attempts together. An item is what a group of "
        "rollouts is made of.",
        tuple(Line(f"items_{part}", words) for part, words in ITEMS.items()),
        stacked=True,
    ),
    Chart(
        "grad-norm", "Gradient norm", "1",
        "Of a sum over tokens, before clipping; only of backends that report it.",
        (Line("grad_norm", "norm"),),
    ),
    Chart(
        "seconds", "Seconds of a step", "s",
        "Where the time goes, one above the other. Waiting for rollouts: sampling and scoring are the bottleneck.",
        tuple(Line(part, words) for part, words in SECONDS.items()),
        stacked=True,
    ),
    Chart(
        "cost", "Cost", "in the prices' currency",
        "Of the run so far, all attempts and evaluations included.",
        (Line("cost", "so far"),),
    ),
)  # fmt: skip


Point = Mapping[str, float]
KeptTable = tuple[list[int], list[float], dict[str, list[float]]]
"""Steps, times (not known) and columns, as `rollouts.metrics_history` has them."""

KEPT: Final = {
    "batch_reward": "batchReward",
    "rollout_reward": "rolloutReward",
    "loss": "loss",
    "staleness": "staleness",
}


def kept_tables(points: Sequence[Point]) -> dict[str, KeptTable]:
    """A point repeats the newest held-out figure: an evaluation is where it changes."""
    columns = {column: [point.get(name, NOT_KNOWN) for point in points] for column, name in KEPT.items()}
    evaluated = _evaluations(points)
    return {
        "steps": ([int(point["step"]) for point in points], [NOT_KNOWN] * len(points), columns),
        "evaluations": (
            [int(point["step"]) for point in evaluated],
            [NOT_KNOWN] * len(evaluated),
            {"held_out": [point["heldOut"] for point in evaluated]},
        ),
    }


def _evaluations(points: Sequence[Point]) -> list[Point]:
    found: list[Point] = []
    for point in points:
        if "heldOut" in point and (not found or found[-1]["heldOut"] != point["heldOut"]):
            found.append(point)
    return found


MOST_RUNS: Final = 16
"""Whose curves are in memory: up to 2 MB each."""

EVERYTHING: Final = -1
"""As the newest step that a page knows: it knows none."""

FEWER: Final = "Only the kept history is shown, at most 500 points of rewards, held-out, loss and staleness"


class RunCurves:
    """The curves of one run. One thread at a time reads its files."""

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
    """Curves of the runs that were looked at last. Who may not list a run's files gets nothing of what others have
    read.
    """

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


def _of_history(history: MetricsHistory, run: TrainingRun, after: int, attempt: int) -> dict[str, object]:
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
    sampled = [{"step": each.step, "rolloutReward": each.rollout_reward} for each in run.status.history]
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
        f"{FEWER}: the run has no files of metrics. It was trained by an older version, or its "
        "trainer.keep_rollouts_mb is 0"
    )


def baseline(run: TrainingRun, steps: Sequence[int], figures: Mapping[str, Sequence[float]]) -> list[float | None]:
    """The figure before training, at each evaluation."""
    metrics = run.status.metrics
    value = metrics.baseline.value if metrics and metrics.baseline else None
    if value is None and steps and steps[0] == 0:
        value = figures["held_out"][0]
    return [value] * len(steps)


def _table(steps: list[int], times: list[float], columns: Mapping[str, Sequence[object]]) -> dict[str, Any]:
    return {"step": steps, "time": times, "columns": dict(columns)}


def _answer(tables: Mapping[str, object], attempt: int, note: str, *, whole: bool) -> dict[str, Any]:
    charts = {"charts": CHARTS} if whole else {}
    return {"attempt": attempt, "whole": whole, "costly": False, "note": note, "tables": tables, **charts}
