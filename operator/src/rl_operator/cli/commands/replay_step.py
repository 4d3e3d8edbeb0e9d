"""`rlctl replay`: compute a step again, beside what was recorded of it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rl_contract.env_vars import RL_START_FROM, RL_START_FROM_OPTIMIZER
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.commands.show_rollouts import kept_steps
from rl_operator.cli.commands.trained_weights import call_tinker_atropos
from rl_operator.cli.options import OutputFormat, OutputKind, RunName, Scope, on_target
from rl_operator.operator_errors import RefusedError
from rl_operator.render.container_template import CONFIG_KEY
from rl_operator.render.frozen_texts import frozen_texts
from rl_operator.rollouts.rollout_source import RolloutSteps, StepFiles
from rl_operator.rollouts.step_reading import StepReading
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.target import Target


@on_target
def replay(
    name: RunName,
    *,
    step: Annotated[int, typer.Option("--step", min=1, help="Its number; `rollouts NAME --steps` lists them.")],
    retrain: Annotated[
        int, typer.Option(min=0, help="Most steps since the checkpoint before it that are trained again.")
    ] = 25,
    scope: Scope,
    output: OutputFormat = OutputKind.TEXT,
) -> None:
    """Compute a step again, from its kept rollouts and the weights before it, beside what was recorded.

    rlctl replay sorting --step 12

    Loss, gradient norm and the logprobs of all trained tokens are computed by the trainer's own code, in a training run
    of its own at the run's backend. The run, its checkpoints and its rollouts stay as they are.

    The weights are those of the newest checkpoint before the step. Where steps lie between, they are trained again on
    their rollouts, which the backend may charge for.
    """
    if output not in (OutputKind.TEXT, OutputKind.JSON):
        raise RefusedError(f"--output is {output.value}; a step is printed as text or json")
    target = scope.target
    run = TrainingRun.model_validate(existing_run(target, scope.namespace, name))
    config = started_config(run, target)
    kept = kept_steps(run, target)
    with TemporaryDirectory(prefix="rlctl-replay-") as folder:
        place = Path(folder)
        (place / CONFIG_KEY).write_text(config, encoding="utf-8")
        write_steps(kept, step, retrain, place)
        files = ["--config", str(place / CONFIG_KEY), "--rollouts", folder, "--step", str(step)]
        call_tinker_atropos(run, target, ["replay", *files, "-o", output.value], beginning_of(run))


def started_config(run: TrainingRun, target: Target) -> str:
    """The config file that the run was started with. Raises RefusedError without one, TemplateChangedError if it is
    another one.
    """
    name = run.status.config_map_name
    found = target.read("ConfigMap", run.metadata.namespace, name) if name else None
    if found is None:
        why = f"its ConfigMap {name} is gone" if name else "it has not started"
        raise RefusedError(f"no step of run {run.metadata.name} in {target.label} can be computed again: {why}")
    return frozen_texts(found, run)[CONFIG_KEY]


def beginning_of(run: TrainingRun) -> dict[str, str]:
    """Variables that say what the run began with, if those are other weights."""
    start_from, parent = run.spec.start_from, run.status.started_from
    path = parent.state_path if parent else start_from.checkpoint if start_from else None
    if start_from is None or path is None:
        return {}
    return {RL_START_FROM: path, RL_START_FROM_OPTIMIZER: "1" if start_from.with_optimizer else ""}


def write_steps(kept: RolloutSteps, step: int, retrain: int, folder: Path) -> None:
    """A file of lines for the step, and for so many before it that have no gap, as the attempts that led to it trained
    them. Raises RefusedError if there are none of the step.
    """
    attempt = _write(kept, kept.step(step), folder)
    for earlier in range(step - 1, max(step - 1 - retrain, 0), -1):
        known = kept.steps.get(earlier)
        files = {number: file for number, file in known.files.items() if number <= attempt} if known else {}
        if not files:
            return
        _write(kept, StepFiles(earlier, files), folder)


def _write(kept: RolloutSteps, files: StepFiles, folder: Path) -> int:
    """Returns the attempt that trained the step. Says what cannot be read."""
    reading = StepReading(kept.source, files)
    with (folder / f"{files.step}.jsonl").open("wb") as file:
        file.writelines(line + b"\n" for line, _ in reading.records())
    for note in reading.summary.notes():
        typer.echo(f"note: step {files.step}: {note}", err=True)
    return reading.summary.attempt or 1
