"""rl_stop_training: end a run cleanly, with a checkpoint to continue from."""

from typing import Final

from rl_operator.api.training_run import TrainingRun
from rl_operator.targets.gitops import suspend_warning
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, Run
from rl_operator.tools.answers.polls import forget, looked_at
from rl_operator.tools.answers.run_status import checkpoint_of, headline, without_empty
from rl_operator.tools.call_context import CallContext, awaited
from rl_operator.tools.runs import ACTIVE, named_run, state_of

PATIENCE_SECONDS: Final = 20.0
"""How long a stop waits for the checkpoint; a large model may take longer to save it."""


class StopTraining(Arguments):
    run_id: Run


def stop_training(context: CallContext, asked: StopTraining) -> Answer:
    run = named_run(context, asked.run_id)
    if state_of(run) not in ACTIVE:
        return _answer(run, f"{run.metadata.name} is not running: it is {state_of(run)}, so there is nothing to stop")
    warning = suspend_warning(run.to_wire(), suspend=True)
    if not run.spec.suspend:
        run = TrainingRun.model_validate(context.target.change_spec(*run.key, {"suspend": True}))
        forget(context, run.metadata.name)
    run = awaited(context, run, lambda: looked_at(context, run), lambda run: run.at_rest, PATIENCE_SECONDS)
    return without_empty(_answer(run, _sentence(run)) | {"warning": warning})


def _answer(run: TrainingRun, message: str) -> Answer:
    name, resumes = run.metadata.name, run.spec.suspend and not run.status.finished
    return without_empty(
        headline(run)
        | {
            "message": message,
            "checkpoint": checkpoint_of(run),
            "resume": f"rl_start_training(run_id={name!r})" if resumes else None,
        }
    )


def _sentence(run: TrainingRun) -> str:
    name, checkpoint = run.metadata.name, run.status.checkpoint
    match state_of(run):
        case "draft":
            return f"{name} will not start: it is a draft again"
        case "stopped":
            return f"{name} is stopped" + (f" and keeps step {checkpoint.step}" if checkpoint else "; it kept no step")
        case "stopping":
            return f"{name} is asked to stop and saves its checkpoint; wait for it: rl_check_status with wait_seconds"
        case state:
            return f"{name} is {state}: it ended before it could be stopped"


TOOLS: Final = (
    AgentTool(
        name="rl_stop_training",
        title="Stop a run",
        description="End a run with a checkpoint, from which rl_start_training resumes it.",
        arguments=StopTraining,
        call=stop_training,
        effect="stops",
    ),
)
