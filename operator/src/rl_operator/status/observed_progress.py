"""The metrics of a status: progress, metrics and history, from any source. Within an attempt they only move forward.

An attempt begins where its checkpoint is: what an earlier one trained beyond it is lost, and is not shown anymore.

The trainer's win while they arrive, then W&B's; at the end the result's. `metrics.source` names the source of the
newest, and `metrics.observedAt` is when they last changed.
"""

from datetime import datetime

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics, reduced
from rl_contract.trainer_messages import BestCheckpoint, EvaluatedFigures, TrainerResult
from rl_operator.api.status_fields import Checkpoint, HistorySample, Progress, RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.observed.observation import ObservedTrainer, format_time
from rl_operator.status.observed.wandb_run import WandbRun, wandb_status

HISTORY_SAMPLES = 10

OF_ONE_STEP = frozenset(reduced("step"))
"""What a step's batch says. One that lacks some of it says that they are unknown, not that they are what they were."""

KEPT = {True: frozenset(reduced("baseline", "evaluation")), False: frozenset(reduced("baseline"))}
"""The metrics that an attempt keeps, by whether the last evaluation was of weights that it keeps."""


def continued(status: RunStatus, step: int) -> RunStatus:
    """What still holds for an attempt that continues from `step`."""
    metrics, checkpoint, progress = status.metrics, status.checkpoint, status.progress
    evaluation = status.evaluation
    if metrics:
        held_out = metrics.held_out
        evaluated = held_out is not None and held_out.step is not None and held_out.step <= step
        kept = {name: value for name, value in metrics.known.items() if name in KEPT[evaluated]}
        metrics = RunMetrics(**kept, source=metrics.source, observed_at=metrics.observed_at) if kept else None
    return status.with_changes(
        progress=_progress(step, progress.total_steps, None, step) if progress else None,
        metrics=metrics,
        evaluation=evaluation if evaluation and evaluation.step <= step else None,
        history=tuple(sample for sample in status.history if sample.step <= step),
        items=status.items if _step(status) <= step else None,
        checkpoint=checkpoint if checkpoint and checkpoint.step <= step else None,
    )


def _continued_as_told(status: RunStatus, from_step: int | None) -> RunStatus:
    """The trainer knows where it began: earlier if a checkpoint was lost, later if it found a newer one."""
    progress = status.progress
    if from_step is None or progress is None or from_step == progress.from_step:
        return status
    return continued(status, from_step)


def _corrected(status: RunStatus, step: int) -> RunStatus:
    """A step that W&B told, and what belongs to it, yield to an earlier one that the trainer itself reports."""
    progress, metrics = status.progress, status.metrics
    if progress is None or metrics is None or metrics.source != "wandb":
        return status
    if not progress.from_step <= step < progress.step:  # before fromStep: its training was never open
        return status
    return continued(status, step).with_changes(
        progress=_progress(step, progress.total_steps, None, progress.from_step), checkpoint=status.checkpoint
    )


def with_trainer(status: RunStatus, trainer: ObservedTrainer, now: datetime) -> RunStatus:
    status = _continued_as_told(status, trainer.from_step)
    if trainer.step:  # 0 also while its training is not open yet
        status = _corrected(status, trainer.step)
    told, steps = trainer.checkpoint, (trainer.step, trainer.total_steps)
    return _with_metrics(status, *steps, trainer.metrics, source="trainer", now=now).with_changes(
        progress=_advanced(
            status,
            *steps,
            trainer.seconds_per_step,
            eta_seconds=trainer.eta_seconds,
            stopped_early=trainer.stopped_early,
        ),
        checkpoint=Checkpoint(**told.model_dump()) if told else status.checkpoint,
        evaluation=_evaluation(status, trainer.metrics, trainer.evaluation),
        best=_best(status, trainer.best, trainer.from_step),
        wandb=trainer.wandb or status.wandb,
        cost=trainer.cost.after(status.cost) if trainer.cost else status.cost,
        items=trainer.items or status.items,
    )


def with_wandb(status: RunStatus, run: TrainingRun, own: WandbRun, *, fills_in: bool, now: datetime) -> RunStatus:
    """W&B's own state; its metrics if it fills in for the trainer (`View.wandb_fills_in`) while the run trains."""
    status = status.with_changes(wandb=wandb_status(status.wandb, own, run.metadata.uid))
    step = own.step or 0
    if not fills_in or status.phase != "Running" or step < _step(status):
        return status  # a checkpoint is newer than what W&B has received so far
    total = _total_steps(status, run)
    return _with_metrics(status, step, total, own.metrics, source="wandb", now=now).with_changes(
        progress=_advanced(status, step, total, own.seconds_per_step)
    )


def with_result(status: RunStatus, result: TrainerResult, now: datetime) -> RunStatus:
    status = _continued_as_told(status, result.from_step)
    if result.outcome in ("succeeded", "stopped"):  # that of a killed or failed trainer is from its last checkpoint
        status = _corrected(status, result.steps_trained)
    checkpoint = status.checkpoint
    if result.state_path:
        checkpoint = Checkpoint(
            step=result.steps_trained, state_path=result.state_path, expires_at=result.checkpoint.expires_at
        )
    pace = status.progress.seconds_per_step if status.progress else None
    steps = result.steps_trained, result.total_steps
    if result.steps_trained >= _step(status):
        evaluation = _evaluation(status, result.metrics, result.evaluation)
        status = _with_metrics(status, *steps, result.metrics, source="result", now=now)
        status = status.with_changes(evaluation=evaluation)
    return status.with_changes(
        progress=_advanced(status, *steps, pace, stopped_early=result.stopped_early),
        checkpoint=checkpoint,
        best=_best(status, result.best_checkpoint, result.from_step),
        cost=result.cost.after(status.cost) if result.cost else status.cost,
        items=result.items or status.items,
    )


def _best(status: RunStatus, told: BestCheckpoint | None, from_step: int | None) -> BestCheckpoint | None:
    """As the trainer tells, once its training is open: it was given the status's, and knows whether it still exists."""
    return status.best if from_step is None else told


def _evaluation(status: RunStatus, metrics: RunMetrics, told: EvaluatedFigures | None) -> EvaluatedFigures | None:
    """As the source of the `metrics` tells, if it knows of an evaluation. A result has room for few figures: those of
    the same evaluation that were told before stay.
    """
    before, held_out = status.evaluation, metrics.held_out
    if held_out is None or held_out.step is None:
        return before
    if before and before.step == held_out.step:
        first = told.figures if told else ()
        return before if before.figures[: len(first)] == first else told
    return told


def _with_metrics(
    status: RunStatus, step: int, total_steps: int, metrics: RunMetrics, *, source: str, now: datetime
) -> RunStatus:
    """Overlay new metrics on the old ones: values that the source does not know are kept, except those of one step or
    of another evaluation.
    """
    old = status.metrics.known if status.metrics else {}
    told = {name: _joined(value, old.get(name)) for name, value in metrics.rounded.known.items()}
    if not told or (step <= _step(status) and all(old.get(name) == value for name, value in told.items())):
        return status
    if "loss" in told:
        old = {name: value for name, value in old.items() if name not in OF_ONE_STEP}
    merged = RunMetrics(**{**old, **told, "source": source, "observed_at": format_time(now)})
    return status.with_changes(metrics=merged, history=_history(status, step, total_steps, merged.rollout_reward))


def _joined(told: float | EvaluatedFigure, old: float | EvaluatedFigure | None) -> float | EvaluatedFigure:
    """A source may know less of an evaluation than another one did."""
    known = old if isinstance(old, EvaluatedFigure) else None
    return told.after(known) if isinstance(told, EvaluatedFigure) else told


def _history(status: RunStatus, step: int, total_steps: int, reward: float | None) -> tuple[HistorySample, ...]:
    """At most HISTORY_SAMPLES points: the first step seen in each tenth of the run."""
    stride = max(1, -(-total_steps // HISTORY_SAMPLES))
    last = status.history[-1].step if status.history else 0
    if not total_steps or len(status.history) == HISTORY_SAMPLES:
        return status.history
    if reward is None or step <= last or (status.history and (step - 1) // stride == (last - 1) // stride):
        return status.history
    return (*status.history, HistorySample(step=step, rollout_reward=reward))


def _advanced(
    status: RunStatus, step: int, total_steps: int, seconds_per_step: float | None, *, eta_seconds: int | None = None,
    stopped_early: str | None = None,
) -> Progress | None:  # fmt: skip
    """Progress within an attempt: the step never goes back. `eta_seconds` is the source's own estimate after `step`."""
    before = status.progress
    if not total_steps:
        return before
    newest = max(step, _step(status))
    advanced = _progress(newest, total_steps, seconds_per_step, before.from_step if before else 0)
    if stopped_early:
        advanced = advanced.with_changes(stopped_early=stopped_early, eta_seconds=0)
    if eta_seconds is None or newest > step:
        return advanced
    return advanced.with_changes(eta_seconds=eta_seconds)


def _progress(step: int, total_steps: int, seconds_per_step: float | None, from_step: int) -> Progress:
    pace = round(seconds_per_step, 3) if seconds_per_step else None
    return Progress(
        step=step,
        from_step=from_step,
        total_steps=total_steps,
        percent=100 * step // total_steps,
        seconds_per_step=pace,
        eta_seconds=round((total_steps - step) * pace) if pace is not None else None,
    )


def _step(status: RunStatus) -> int:
    return status.progress.step if status.progress else 0


def _total_steps(status: RunStatus, run: TrainingRun) -> int:
    """As the trainer once reported, else as the run requests; 0: not known yet."""
    asked = run.spec.config.get("total_steps")
    return status.progress.total_steps if status.progress else asked if isinstance(asked, int) else 0
