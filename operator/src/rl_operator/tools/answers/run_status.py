"""A run as reported to agents: the keys that they know, without empty ones. Pure."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import ContainerStatus, Failure
from rl_operator.api.training_run import TrainingRun
from rl_operator.experiments.run_figures import elapsed_seconds
from rl_operator.metrics.wandb_query import entity_and_project
from rl_operator.status.attempt.attempt_fate import DISRUPTIONS
from rl_operator.status.attempt.attempt_outcome import RAISE, RESUME
from rl_operator.status.observed.observation import format_time
from rl_operator.status.observed.wandb_run import BESIDE
from rl_operator.status.phase_and_action import DRAFT_MESSAGE
from rl_operator.status.text.reasons import REASONS
from rl_operator.tools.agent_tool import Answer
from rl_operator.tools.answers.polls import next_look
from rl_operator.tools.answers.shown_text import fit_tokens, one_line, short_value
from rl_operator.tools.runs import state_of

MAX_TOKENS: Final = 285
"""For a status; the fields about the look itself are added to it."""

LONGEST_URL: Final = 240

RETRYABLE: Final = DISRUPTIONS | {
    "BackendUnreachable",
    "ContainerLost",
    "Disrupted",
    "EnvironmentLost",
    "Evicted",
    "KubeletFailed",
    "NodeLost",
    "PodDeleted",
    "PodLost",
    "PodRejected",
    "ProcessSilent",
    "UnexpectedExit",
}
"""Not the run's own fault: the same run may succeed another time, without a fix."""

PROCESSES: Final = {"api": "api", "trainer": "trainer", "environment": "env"}
_OTHER_SERVERS: Final = ("offline", "failed")
"""How the trainer's report begins if W&B has not received everything."""


def status_of(run: TrainingRun, now: datetime) -> Answer:
    """The full status answer, in at most MAX_TOKENS."""
    status, seconds = run.status, elapsed_seconds(run, now)
    checkpoint = status.checkpoint.step if status.checkpoint else None
    answer = {
        **headline(run),
        "running_time_minutes": None if seconds is None else round(seconds / 60, 1),
        "processes": dict(_processes(run)),
        "progress": plain(
            status.progress, "step", "total_steps", "stopped_early", "percent", "seconds_per_step", "eta_seconds"
        ),
        "metrics": metrics_of(run),
        "cost": status.cost.to_wire() if status.cost else None,
        **wandb_of(run),
        "checkpoint_step": checkpoint,
        "failure": failure_of(status.failure) if status.failure else None,
        "queue": status.queue.to_wire() if status.queue else None,
        **_refusals(run),
        "observed_at": format_time(now),
        "next_check_in_seconds": next_look(run),
    }
    return fit_tokens(without_empty(answer), MAX_TOKENS)


def _refusals(run: TrainingRun) -> Answer:
    """Before the start they are what matters; for a training run, one says that an edit had no effect."""
    refusals = run.status.refusals
    most = len(refusals) if run.status.start_time is None else 1
    return {
        "refusals": [refusal_of(refusal) for refusal in refusals[:most]],
        "more_refusals": len(refusals[most:]) or None,
    }


def headline(run: TrainingRun) -> Answer:
    return {
        "run_id": run.metadata.name,
        "environment": one_line(run.spec.environment),
        "status": state_of(run),
        "message": one_line(_message(run)),
    }


def _message(run: TrainingRun) -> str:
    """The operator's hint tells users what to write: agents are told what to call."""
    if run.is_draft and run.status.message in (None, "", DRAFT_MESSAGE):
        return "Nothing runs and nothing costs until rl_start_training."
    said = run.status.message or "Not reconciled yet."
    said = said.replace(RAISE % run.metadata.name, "have someone raise spec.budget")
    return said.replace(RESUME % run.metadata.name, "call rl_start_training")


def metrics_of(run: TrainingRun) -> Answer:
    """The latest metrics, by the names that agents know."""
    metrics, progress, wandb = run.status.metrics, run.status.progress, run.status.wandb
    return without_empty(
        {
            "step": progress.step if progress else None,
            "state": _wandb_word(wandb.state) if wandb and wandb.state else None,
            **(metrics.answers if metrics else {}),
        }
    )


def wandb_of(run: TrainingRun) -> Answer:
    """Where its curves are, or why there are none."""
    asked, told = run.spec.wandb, run.status.wandb
    url = told.url if told and told.url and len(told.url) <= LONGEST_URL else None
    state = (told.state or "") if told else ""
    project = entity_and_project(url)[1] if url else None
    return {
        "wandb_url": url,
        "wandb_project": _name(project or asked.project),
        "wandb_run_name": _name(asked.name or run.metadata.name),
        "wandb_error": one_line(state) if state.startswith(_OTHER_SERVERS) else None,
    }


def failure_of(failure: Failure) -> Answer:
    """`message` is a container's own message."""
    meaning = REASONS.get(failure.reason)
    return without_empty(
        {
            "code": failure.reason,
            "hint": meaning.advice if meaning else "",
            "retryable": failure.reason in RETRYABLE,
            "message": one_line(failure.message),
        }
    )


def refusal_of(refusal: Refusal) -> Answer:
    """The one shape of refusals; long values are cut."""
    wire: Answer = refusal.to_wire()
    return {name: _short(value) for name, value in wire.items()}


def checkpoint_of(run: TrainingRun) -> Answer:
    return plain(run.status.checkpoint, "step", "state_path", "expires_at")


def without_empty(answer: Answer) -> Answer:
    return {name: value for name, value in answer.items() if value not in (None, "", [], {})}


def _short(value: object) -> object:
    """Sentences stay whole."""
    return one_line(value) if isinstance(value, str) else short_value(value)


def _name(text: str | None) -> str | None:
    return one_line(text) if text else None


def plain(model: object, *names: str) -> Answer:
    return without_empty({name: getattr(model, name) for name in names}) if model else {}


def _processes(run: TrainingRun) -> Iterator[tuple[str, str]]:
    apart = run.status.environments
    for container in run.status.containers:
        if container.name in PROCESSES:
            yield PROCESSES[container.name], _process(container)
    if apart is not None:
        yield "env", f"{apart.ready} of {apart.desired} running"


def _process(container: ContainerStatus) -> str:
    if container.state in ("Running", "Ready"):
        return "running"
    if container.state == "Waiting":
        return f"waiting ({container.reason})" if container.reason else "waiting"
    return f"exited ({container.exit_code})"


def _wandb_word(state: str) -> str:
    """W&B's own state if it is known, else the first word of the trainer's report."""
    word = state.partition(BESIDE)[2] or state
    return re.split(r"[^\w]", word, maxsplit=1)[0]
