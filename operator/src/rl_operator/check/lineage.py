"""A run that starts from another one: the relevant state of that run, and what must hold for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic.alias_generators import to_camel

from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.run_inputs import ParentRun, Subject, base_model
from rl_operator.api.settings.fields import TRAINER_FIELDS
from rl_operator.api.status_fields import TERMINAL_PHASES, StartedFrom
from rl_operator.api.training_run import TrainingRun
from rl_operator.api.value_text import same_value, text_of

SHAPE: Final[Mapping[str, str]] = {
    "lora_rank": "a LoRA rank of",
    "train_attn": "train_attn",
    "train_mlp": "train_mlp",
    "train_unembed": "train_unembed",
}
"""The trainer's fields that an adapter has from its beginning on, as a hint speaks of them."""


@dataclass(frozen=True, slots=True)
class ParentAdapter:
    """What a state belongs to. It can be loaded into nothing else."""

    base_model: str | None
    shape: Mapping[str, object]
    """The trainer's fields of SHAPE."""


def adapter_of(env: Mapping[str, object], openai: Mapping[str, object], trainer: Mapping[str, object]) -> ParentAdapter:
    """The adapter that a config file makes the trainer train."""
    return ParentAdapter(
        base_model(env, openai), {name: trainer.get(name, TRAINER_FIELDS[name].default) for name in SHAPE}
    )


def describe_parent(
    run: TrainingRun, adapter: ParentAdapter | None, now: datetime, unknown_because: str = ParentRun.unknown_because
) -> ParentRun:
    """A run as its children see it. `adapter` None: it is not known what the run trained."""
    state, expires_at = _last_state(run)
    return ParentRun(
        unknown_because=unknown_because,
        name=run.metadata.name,
        exists=True,
        phase=run.status.phase,
        state=state,
        expires_at=expires_at,
        expired=_is_past(expires_at, now),
        environment=run.spec.environment,
        base_model=adapter.base_model if adapter else None,
        adapter_shape=adapter.shape if adapter else {},
    )


def lineage_refusals(subject: Subject) -> Iterator[Refusal]:
    start_from, parent = subject.run.spec.start_from, subject.inputs.parent
    if start_from is None:
        return
    if (start_from.run is None) == (start_from.checkpoint is None):
        hint = "name exactly one of run and checkpoint"
        yield Refusal(code="Inconsistent", field="spec.startFrom", given=start_from.to_wire(), hint=hint)
    elif start_from.run is not None and parent is not None:
        for hint, allowed in _objections(subject, parent):
            yield Refusal(
                code="StartFromRefused",
                field="spec.startFrom.run",
                given=redacted(start_from.run),
                allowed=allowed,
                hint=hint,
            )
        if start_from.data == "continue" and parent.environment not in (None, subject.run.spec.environment):
            there, here = _text(parent.environment), _text(subject.run.spec.environment)
            hint = f"{parent.name} trained items of {there}, and this run trains those of {here}: use restart"
            yield Refusal(
                code="StartFromRefused", field="spec.startFrom.data", given="continue", allowed="restart", hint=hint
            )


def _objections(subject: Subject, parent: ParentRun) -> Iterator[tuple[str, object]]:
    """Hint and allowed value, for each reason why the run cannot start from that one."""
    if problem := _unusable(subject.run, parent):
        yield problem, "a run of this namespace that is over, with a state that has not expired"
        return
    own = adapter_of(subject.sections.env, subject.sections.openai, subject.trainer.in_force)
    if own.base_model is not None and own.base_model != parent.base_model:
        model = _text(parent.base_model)
        given = f"it trained the model {model}, and this run trains {_text(own.base_model)}"
        hint = f"{given}: choose a runtime that trains {model}, or start from another run"
        yield hint, {"baseModel": redacted(parent.base_model)}
    for name, trained in parent.adapter_shape.items():
        if same_value(own.shape[name], trained):
            continue
        given = f"it trained with {SHAPE[name]} {_text(trained)}, and this run has {_text(own.shape[name])}"
        advice = (
            "choose a runtime that does not lock it to another"
            if name in subject.trainer.locked
            else f"set spec.trainer.{name} to {_text(trained)}"
        )
        yield f"{given}: {advice}, or start from another run", {to_camel(name): redacted(trained)}


def _text(value: object) -> str:
    """A setting as a hint may repeat it: no keys, and nothing long."""
    return text_of(redacted(value))


def _unusable(run: TrainingRun, parent: ParentRun) -> str | None:
    """Why nothing can start from the parent in its current state."""
    if parent.name == run.metadata.name:
        return "a run cannot start from itself: name another one"
    if not parent.exists:
        return f"there is no such run in namespace {redacted(run.metadata.namespace)}: name one that is over"
    if parent.phase not in TERMINAL_PHASES:
        phase = parent.phase or "new"
        if phase == "Stopped" and parent.state:
            return f"it is Stopped and not over: resume it and let it end; {_instead(parent.state)}"
        return f"it is {phase} and not over: start from it once it is"
    if parent.state is None:
        return f"it is {parent.phase} and kept no state: name another run"
    if parent.expired:
        return f"its state of step {parent.state.step} expired at {parent.expires_at}: name another run"
    if parent.base_model is None:
        return f"what it trained is no longer known ({parent.unknown_because}): {_instead(parent.state)}"
    return None


def _instead(state: StartedFrom) -> str:
    return f"to start from its state of step {state.step}, set spec.startFrom to {{checkpoint: {state.state_path}}}"


def _last_state(run: TrainingRun) -> tuple[StartedFrom | None, str | None]:
    """The latest saved state, and when it expires: with the weights of a success, else the newest checkpoint."""
    status, checkpoint = run.status, run.status.checkpoint
    kept = {checkpoint.state_path: checkpoint.expires_at} if checkpoint else {}
    weights = status.weights
    if weights and weights.state_path:
        step = status.progress.step if status.progress else 0
        return _started_from(run, weights.state_path, step), weights.expires_at or kept.get(weights.state_path)
    if checkpoint:
        return _started_from(run, checkpoint.state_path, checkpoint.step), checkpoint.expires_at
    return None, None


def _started_from(run: TrainingRun, state_path: str, step: int) -> StartedFrom:
    url = run.status.wandb.url if run.status.wandb else None
    return StartedFrom(run=run.metadata.name, uid=run.metadata.uid, step=step, state_path=state_path, wandb_url=url)


def _is_past(moment: str | None, now: datetime) -> bool:
    """Whether an RFC 3339 time has passed; False for anything that is not a time."""
    try:
        parsed = datetime.fromisoformat(moment or "")
    except ValueError:
        return False
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) <= now
