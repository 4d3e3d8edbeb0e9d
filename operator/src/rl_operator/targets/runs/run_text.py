"""What is said of a run, in the same words wherever it is shown. Pure."""

from typing import TYPE_CHECKING

from rl_operator.status.text.figure_text import duration

if TYPE_CHECKING:  # importing the kinds costs start-up time that not every command needs
    from rl_contract.trainer_messages import BestCheckpoint, EvaluatedFigures
    from rl_operator.api.training_run import TrainingRun
    from rl_operator.experiments.run_figures import RunFigures
    from rl_operator.targets.target import Target


def time_left(run: "TrainingRun") -> str:
    """What `status.progress` says, and whether a final evaluation follows that it does not count; empty if that is
    unknown, or the run is not training.
    """
    progress = run.status.progress
    if run.status.phase != "Running" or progress is None or not progress.eta_seconds:
        return ""
    return f"{duration(progress.eta_seconds)} left{' + evaluation' if _evaluation_unknown(run) else ''}"


def _evaluation_unknown(run: "TrainingRun") -> bool:
    """The run evaluates, and its trainer does not know for how long: an attempt that continues has evaluated nothing
    yet, and W&B does not say.
    """
    progress, metrics = run.status.progress, run.status.metrics
    if progress is None or metrics is None or metrics.held_out is None:
        return False
    earlier = progress.from_step > 0 and (metrics.held_out.step or 0) <= progress.from_step
    return earlier or metrics.source == "wandb"


def notable_best(run: "TrainingRun") -> "BestCheckpoint | None":
    """The best weights, unless the last ones are as good."""
    best, metrics, checkpoint = run.status.best, run.status.metrics, run.status.checkpoint
    last = metrics.held_out if metrics else None
    if best is None or last is None:
        return None
    last_step = checkpoint.step if checkpoint else last.step
    if best.step == last_step or (last.step == last_step and last.value >= best.held_out.value):
        return None
    return best


def best_sentence(run: "TrainingRun") -> str:
    """A sentence that the last weights are worse than the best ones; empty if that may be noise."""
    best, metrics = run.status.best, run.status.metrics
    last = metrics.held_out if metrics else None
    if best is None or last is None or not best.held_out.is_above(last):
        return ""
    return f"The weights of step {last.step} are worse by more than noise."


def held_out_rows(told: "EvaluatedFigures") -> list[tuple[str, str, str, str]]:
    """Name, figure, 95 % interval and samples; what is not known is empty."""
    texts = ((each, each.text.partition(" ")) for each in told.figures)
    return [(each.name, value, ends, str(each.samples or "")) for each, (value, _, ends) in texts]


def flags_for(target: "Target", namespace: str) -> str:
    """What follows a command about a run of this namespace, wherever somebody else calls it."""
    chosen = f" -n {namespace}"
    is_usual = target.runs_files and namespace == target.namespace
    return target.flags if is_usual or target.flags.endswith(chosen) else target.flags + chosen


def weight_commands(run: "TrainingRun", program: str, flags: str) -> dict[str, str]:
    """What can be done with trained weights, and what for."""
    name = run.metadata.name
    return {
        f'{program} sample {name} "PROMPT"{flags}': "talk to the trained weights",
        f"{program} export {name} --to DIR{flags}": "take them out, as a PEFT folder",
    }


def compared_figures(row: "RunFigures", unknown: str) -> dict[str, str]:
    """What stands side by side of runs that are compared; `unknown` for what is not known. Held-out figures say how
    they were made: those of another temperature are not the same figure.
    """
    best = f"{row.best.value:.3f} at step {row.best_step}" if row.best else unknown
    return {
        "phase": row.phase,
        "step": row.steps,
        "rollout reward": unknown if row.rollout_reward is None else f"{row.rollout_reward:.3f}",
        "held-out": row.held_out.full_text if row.held_out else unknown,
        "held-out before": row.before.full_text if row.before else unknown,
        "best held-out": best,
        "took": unknown if row.seconds is None else duration(row.seconds),
        "attempts": str(row.attempts or unknown),
    }
