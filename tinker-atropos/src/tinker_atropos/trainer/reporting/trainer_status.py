"""What the trainer reports about itself: `/status`, `/history` and the few metrics of the result."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from rl_contract.status_metrics import (
    EVALUATION_PREFIX,
    MAX_POINTS,
    EvaluatedFigure,
    RunMetrics,
    is_metric,
    reduced,
    wire_name,
)
from rl_contract.trainer_messages import (
    MOST_FIGURES,
    BestCheckpoint,
    EvaluatedFigures,
    ItemAccount,
    Phase,
    RunCost,
    TrainerCheckpoint,
    TrainerStatus,
    WandbStatus,
)
from rl_contract.wire import timestamp
from tinker_atropos.trainer.reporting.collapse import CollapseWatch, Decline, held_out_decline, reward_decline
from tinker_atropos.trainer.reporting.time_left import Schedule, TimeLeft
from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade
from tinker_atropos.trainer.standstill import Standstill
from tinker_atropos.trainer.trajectories.api_client import MetricsRecord, Peer

LONGEST_NAME: Final = 64
"""Characters: a set's name has at most 40."""

_OF_OTHERS: Final = ("_low", "_high", "/n")
"""Ends of metrics that belong to a figure."""


def evaluated_figures(step: int, metrics: Mapping[str, float]) -> EvaluatedFigures | None:
    """None if there is only one figure. The main set's come first, then the first one of each other set.

    metrics: as an environment reports them, `eval/pass_at_4`, `eval/SET/percent_correct_low`, `eval/SET/n`, …
    """
    figures = [name for name in metrics if name.startswith(EVALUATION_PREFIX) and not name.endswith(_OF_OTHERS)]
    if len(figures) < 2:
        return None
    firsts = {name.rpartition("/")[0]: name for name in reversed(figures)}
    ranked = sorted(figures, key=lambda name: (name.count("/") > 1, firsts[name.rpartition("/")[0]] != name))
    short = [name for name in ranked if len(name) - len(EVALUATION_PREFIX) <= LONGEST_NAME]
    found = [figure for name in short if (figure := EvaluatedFigure.found(metrics, name)) is not None][:MOST_FIGURES]
    return EvaluatedFigures(step=step, figures=tuple(found), more=len(figures) - len(found))


def not_numbers(step: int, metrics: Mapping[str, float]) -> str | None:
    """A sentence that names what of an evaluation is not a number; None: all is."""
    odd = [name for name, value in metrics.items() if name.startswith(EVALUATION_PREFIX) and not is_metric(value)]
    if not odd:
        return None
    more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
    return f"the evaluation of step {step} found no number for {odd[0][:LONGEST_NAME]}{more}: left out"


MAX_WARNINGS = 3
RECENT_SECONDS = 300.0
"""How long an environment's metric counts in the mean over several environments."""

PACE_SMOOTHING = 0.2
"""Weight of the newest step in `secondsPerStep`."""

_FROM_TRAINING = {origin.metrics[0]: wire_name(name) for name, origin in reduced("step").items()}
_MEANS = {wire_name(name): origin for name, origin in reduced("mean").items()}
_EVALUATION_SECONDS = "env/evaluation_seconds"
_GROUPS_MADE = (
    ("env/groups_kept", "kept", 1),
    ("env/groups_kept_all_right", "kept", -1),
    ("env/groups_kept_all_right", "equal", 1),
    ("env/groups_filtered_equal", "equal", 1),
    ("env/groups_filtered_by_environment", "withheld", 1),
)
"""Which counts make which of GroupsMade, with their signs."""

_GROUP_MIX = {f"env/groups_{mix}": f"groups/{mix}" for mix in ("all_right", "all_wrong", "mixed")}
_HELD_OUT = wire_name("held_out")
_HELD_OUT_STEP = f"{_HELD_OUT}Step"
"""Of a point: its evaluation's figure, and the step of that."""


def _groups_made(metrics: Mapping[str, float]) -> dict[str, float]:
    """Fields of GroupsMade that the metrics tell of."""
    counts: dict[str, float] = {}
    for name, kind, sign in _GROUPS_MADE:
        if name in metrics:
            counts[kind] = counts.get(kind, 0.0) + sign * metrics[name]
    return counts


class History:
    """At most MAX_POINTS points over the whole run: when full, every second point is dropped, and from then on only
    every second step is kept.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._stride = 1
        self.points: list[dict[str, float]] = []

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        if step % self._stride:
            return
        self.points.append({"step": step, **metrics})
        if len(self.points) > self._max_points:
            self._stride *= 2
            self.points = [point for point in self.points if point["step"] % self._stride == 0]

    def amend(self, step: int, metrics: Mapping[str, float]) -> None:
        """Figures of a step that came after it was trained: an environment reports its rollouts a moment later."""
        if self.points and self.points[-1]["step"] == step:
            self.points[-1] |= metrics

    def evaluated(self, step: int, value: float) -> None:
        """The result of an evaluation of a step, which arrives after later steps: it holds from its own step on."""
        for point in self.points:
            if point["step"] >= step and point.get(_HELD_OUT_STEP, -1) <= step:
                point |= {_HELD_OUT: value, _HELD_OUT_STEP: step}


def _held_out_point(figure: EvaluatedFigure) -> dict[str, float]:
    return {_HELD_OUT: figure.value, _HELD_OUT_STEP: figure.step or 0}


def chosen(points: Sequence[Mapping[str, float]], columns: Collection[str]) -> list[dict[str, float]]:
    """The given metrics of each point, if it has them, and its step: a point may have a hundred."""
    names = {"step", *columns}
    return [{name: value for name, value in point.items() if name in names} for point in points]


@dataclass(slots=True)
class LiveStatus:
    """The current state of the run. `metrics` are numbers by the CR's names, evaluations left out; fractions are 0 to
    1.
    """

    total_steps: int
    run_uid: str = ""
    attempt: int = 1
    phase: Phase = "starting"
    step: int = 0
    from_step: int | None = None
    started_at: float = field(default_factory=time.time)
    last_step_at: float | None = None
    seconds_per_step: float | None = None
    training_run_id: str | None = None
    checkpoint: TrainerCheckpoint | None = None
    best: BestCheckpoint | None = None
    stopped_early: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    held_out: EvaluatedFigure | None = None
    baseline: EvaluatedFigure | None = None
    evaluated: EvaluatedFigures | None = None
    warnings: dict[str, str] = field(default_factory=dict)
    environment_warnings: tuple[str, ...] = ()
    environment_state: str | None = None
    groups_made: GroupsMade = field(default_factory=GroupsMade)
    groups_made_by: dict[int, GroupsMade] = field(default_factory=dict)
    group_mix: dict[str, float] = field(default_factory=dict)
    means: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    queued_groups: int = 0
    oldest_queued_step: int | None = None
    items: ItemAccount | None = None
    history: History = field(default_factory=History)
    collapse: CollapseWatch = field(default_factory=CollapseWatch)
    collapsed: str | None = None
    held_out_decline: Decline = field(default_factory=held_out_decline)
    reward_decline: Decline = field(default_factory=reward_decline)
    standstill: Standstill = field(default_factory=Standstill)
    clock: Callable[[], float] = time.monotonic
    schedule: Schedule | None = None
    time_left: TimeLeft = field(init=False)

    def __post_init__(self) -> None:
        self.time_left = TimeLeft(self.schedule or Schedule(self.total_steps), self.clock)

    def warn(self, topic: str, sentence: str | None) -> None:
        """Show a warning, newest first; None clears the topic's warning."""
        self.warnings.pop(topic, None)
        if sentence is not None:
            self.warnings = {topic: sentence, **self.warnings}

    def heard_of(self, environments: Peer) -> None:
        """Take over what they warn of, and the state that the next checkpoint keeps; a silent one takes back nothing
        of the latter.
        """
        self.environment_warnings = environments.warnings
        self.environment_state = environments.environment_state or self.environment_state

    def ends_early(self, step: int, reason: str) -> None:
        """`step` is the last one, though not the last of `total_steps`."""
        self.stopped_early = reason
        self.time_left.schedule = replace(self.time_left.schedule, total_steps=step)

    def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Record a finished step that took `seconds`. The first one does not count: it waited for the environment. Nor
        do pauses.
        """
        seconds = max(0.0, seconds - metrics.get("time/paused", 0.0))
        if self.last_step_at is not None:
            previous = self.seconds_per_step or seconds
            self.seconds_per_step = previous + PACE_SMOOTHING * (seconds - previous)
        self.time_left.step_trained(step, seconds, metrics)
        self.step = step
        self.last_step_at = time.time()
        for name, ours in _FROM_TRAINING.items():
            if name in metrics:
                self.metrics[ours] = metrics[name]
            elif "train/loss" in metrics:  # a step that was trained, and of which this is unknown
                self.metrics.pop(ours, None)
        known = {} if self.held_out is None else _held_out_point(self.held_out)
        self.history.add(step, {**metrics, **self.metrics, **known})
        if "rolloutReward" in self.metrics:
            self.reward_decline.add(step, self.metrics["rolloutReward"])
        self._warn_of_decline()

    def relayed(self, record: MetricsRecord) -> None:
        """Record what an environment reported."""
        if record.evaluated_step is not None:
            self._evaluated(record.evaluated_step, record.metrics, record.held_out)
            if _EVALUATION_SECONDS in record.metrics:
                self.time_left.evaluated(record.evaluated_step, record.metrics[_EVALUATION_SECONDS])
        environment = record.environment or 0
        made = self._count(environment, _groups_made(record.metrics))
        if self.phase != "done":
            self.collapsed = self.collapse.report(made, record.metrics.get("env/reward_mean"), self.step)
        for name, value in record.metrics.items():
            if name in _GROUP_MIX:
                self.group_mix[_GROUP_MIX[name]] = self._recent_mean(name, environment, value)
            for ours in (each for each, origin in _MEANS.items() if origin.matches(name)):
                self.metrics[ours] = self._recent_mean(ours, environment, value)
        if "env/reward_mean" in record.metrics:
            self.history.amend(self.step, {"rolloutReward": self.metrics["rolloutReward"]})
        self._warn_of_decline()

    def _warn_of_decline(self) -> None:
        """Warns of a decline of the held-out figure or, while that says nothing, of the training reward: over steps
        or, if they no longer come, over groups.
        """
        if self.held_out is not None and self.held_out.step is not None:
            self.held_out_decline.add(self.held_out.step, self.held_out.value)
        sentence = self.held_out_decline.sentence or self.reward_decline.sentence or self.collapse.fallen
        if sentence != self.warnings.get("decline"):
            self.warn("decline", sentence)

    def _recent_mean(self, name: str, environment: int, value: float) -> float:
        """The mean over several environments of each one's last report, if it is recent: one may be gone."""
        now = self.clock()
        said = self.means.setdefault(name, {})
        said[environment] = (now, value)
        recent = [value for said_at, value in said.values() if now - said_at <= RECENT_SECONDS]
        return sum(value / len(recent) for value in recent)  # a sum might be too large for a float

    def _count(self, environment: int, counts: Mapping[str, float]) -> GroupsMade:
        """Returns the increase. Each environment's counts start over when it is replaced; their sum does not."""
        before = self.groups_made_by.get(environment, GroupsMade())
        made = replace(before, **counts)
        increase = made.since(before)
        self.groups_made_by[environment] = made
        self.groups_made = self.groups_made.plus(increase)
        return increase

    def _evaluated(self, step: int, metrics: Mapping[str, float], found: EvaluatedFigure | None) -> None:
        """Record one evaluation; that of step 0 is also the baseline. A newer one's result stays, if this is late."""
        self.warn("evaluation", not_numbers(step, metrics))
        if found is None:
            return
        if step == 0:
            self.baseline = found
        if self.held_out is None or step >= (self.held_out.step or 0):
            self.held_out = found
            self.evaluated = evaluated_figures(step, metrics)
        self.history.evaluated(step, found.value)

    @property
    def run_metrics(self) -> RunMetrics:
        """The latest metrics, as messages have them."""
        return RunMetrics.of_numbers(self.metrics).with_changes(held_out=self.held_out, baseline=self.baseline)

    @property
    def rewarded(self) -> dict[str, float]:
        """The rollout reward, for the files of a step. The tracker has it from the environment."""
        reward = self.run_metrics.rollout_reward
        return {} if reward is None else {"env/reward_mean": reward}

    def message(
        self, wandb: Mapping[str, Any], waiting: str | None, cost: RunCost | None, *, silent: bool
    ) -> TrainerStatus:
        """`/status`. `wandb` is what the tracker says of itself (`Tracker.to_wire`), `waiting` a sentence on what the
        trainer waits for and why; `silent`: it cannot reach its backend.
        """
        seconds = self.time_left.seconds()
        return TrainerStatus(
            run_uid=self.run_uid,
            attempt=self.attempt,
            phase=self.phase,
            waiting=waiting,
            warnings=(*self.warnings.values(), *self.environment_warnings)[:MAX_WARNINGS],
            step=self.step,
            from_step=self.from_step,
            total_steps=self.total_steps,
            started_at=_timestamp(self.started_at),
            last_step_at=_timestamp(self.last_step_at),
            seconds_per_step=self.seconds_per_step and round(self.seconds_per_step, 3),
            eta_seconds=None if seconds is None else round(seconds),
            training_run_id=self.training_run_id,
            checkpoint=self.checkpoint,
            stopped_early=self.stopped_early,
            best=self.best,
            metrics=self.run_metrics,
            evaluation=self.evaluated,
            wandb=WandbStatus.model_validate(wandb),
            cost=cost,
            items=self.items,
            backend_silent=silent,
            pause=self.standstill.pause,
            resumed_at=self.standstill.resumed_at,
        )


def console_line(step: int, total_steps: int, metrics: Mapping[str, float], warnings: Collection[str] = ()) -> str:
    """One line per step, of its metrics and the status'; those that are missing are left out. `warnings` are topics:
    /status explains them.
    """
    columns: list[tuple[str, str, Callable[[float], str]]] = [
        ("rollout reward", "rolloutReward", "{:.3f}".format),
        ("loss", "train/loss", "{:+.4f}".format),
        ("staleness", "staleness/mean", "{:.1f}".format),
        ("gap", "logprobs/gap", "{:.1e}".format),
        ("waited", "time/waiting", "{:.2f} s".format),
        ("trained", "time/forward_backward", "{:.2f} s".format),
    ]
    shown = [f"{label} {show(metrics[name])}" for label, name, show in columns if name in metrics]
    warned = [f"! {', '.join(warnings)}"] if warnings else []
    return f"step {step}/{total_steps}  " + "  ".join(shown + warned)


def _timestamp(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp(datetime.fromtimestamp(seconds, UTC))
