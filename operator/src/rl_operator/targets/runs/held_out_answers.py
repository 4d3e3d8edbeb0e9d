"""What runs that are compared answered to each held-out item: from their rollouts, where those can be read at once."""

from collections.abc import Iterable, Sequence

from rl_operator.api.training_run import TrainingRun
from rl_operator.experiments.run_figures import RunFigures
from rl_operator.operator_errors import OperatorError, PodNeededError
from rl_operator.rollouts.evaluated_answers import evaluated_answers
from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.targets.target import Target


def with_answers(target: Target, rows: Sequence[RunFigures], runs: Iterable[TrainingRun]) -> tuple[RunFigures, ...]:
    """The rows; those of `runs` with their answers, or why there are none."""
    by_uid = {run.metadata.uid: run for run in runs}
    return tuple(_answered(target, row, by_uid[row.uid]) if row.uid in by_uid else row for row in rows)


def _answered(target: Target, row: RunFigures, run: TrainingRun) -> RunFigures:
    if row.held_out is None:
        return row
    if row.settings.get("trainer.keep_rollouts_mb") == 0:
        return row.with_changes(unpaired="its trainer.keep_rollouts_mb is 0, so no rollouts are kept")
    try:
        steps = RolloutSteps.of(target.rollouts(run, may_start=False))
        return row.with_changes(answers=evaluated_answers(steps, row.held_out))
    except PodNeededError:
        why = f"its rollouts are stored, and no pod reads them: rlctl rollouts {row.name} starts one"
    except OperatorError as error:
        why = str(error)
    return row.with_changes(unpaired=why)
