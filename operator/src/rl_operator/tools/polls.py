"""What a caller was last told of a run: an early poll gets it again, and a wait ends with what is new."""

from datetime import timedelta
from typing import Literal

from rl_operator.api.run import TrainingRun
from rl_operator.errors import GoneError
from rl_operator.tools.poll_pace import EARLY
from rl_operator.tools.recent_answers import Given
from rl_operator.tools.tool import Answer
from rl_operator.tools.tool_context import ToolContext

SHORT_ID_LENGTH = 8

Until = Literal["change", "step", "finished"]


def early_answer(context: ToolContext, run_id: str) -> Answer | None:
    """The last answer, while the next look is not worth its while; it costs nobody a call."""
    now = context.now()
    given = context.recent.still_good(_key(context, run_id), now)
    if given is None:
        return None
    return given.answer | {"rate_limited": True, "next_check_in_seconds": given.seconds_until_due(now)}


def last_told(context: ToolContext, run_id: str) -> Answer | None:
    given = context.recent.latest(_key(context, run_id))
    return given.answer if given else None


def remember(context: ToolContext, answer: Answer, asked: str) -> None:
    """Under the run's name and the one that was `asked` for: a short one might stand for another run by itself."""
    due = context.now() + min(timedelta(seconds=answer.get("next_check_in_seconds", 0)), EARLY)
    for name in {answer["run_id"], asked}:
        context.recent.give(_key(context, name), Given(answer, due))


def forget(context: ToolContext, run: str) -> None:
    """Something was changed: the next look is worth its while at once."""
    for name in (run, run[-SHORT_ID_LENGTH:]):
        context.recent.forget(_key(context, name))


def is_news(before: Answer, now: Answer, until: Until) -> bool:
    """Whether the second answer is what a caller waits for who knows the first. Pure."""
    if until == "step":
        return _step(now) != _step(before)
    return until == "change" and _gist(now) != _gist(before)


def looked_at(context: ToolContext, run: TrainingRun) -> TrainingRun:
    """The run as it is now: one read. Raises GoneError when it was deleted since."""
    namespace, name = run.key
    manifest = context.target.run(namespace, name)
    found = TrainingRun.model_validate(manifest) if manifest else None
    if found is None or found.metadata.uid != run.metadata.uid:
        raise GoneError(f"run {name} was deleted meanwhile from namespace {namespace} of {context.target.label}")
    context.target.look_after(namespace, name)
    return found


def _gist(answer: Answer) -> tuple[object, ...]:
    """What a person would call a change: figures and steps are none."""
    message = None if answer["status"] == "running" else answer.get("message")
    failure = answer.get("failure", {}).get("code")
    return answer["status"], message, failure, answer.get("checkpoint_step"), answer.get("queue"), _evaluated(answer)


def _evaluated(answer: Answer) -> object:
    return answer.get("metrics", {}).get("eval_percent_correct")


def _step(answer: Answer) -> object:
    return answer.get("progress", {}).get("step")


def _key(context: ToolContext, run_id: str) -> tuple[str, ...]:
    return context.caller, context.namespace, run_id
