"""Checkpoints of a run: how they are named and marked, which one a new attempt goes on from, which ones go. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from tinker_atropos.errors import InternalError
from tinker_atropos.result import timestamp

Kind = Literal["state", "sampler"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state (trainable, with optimizer) or sampler weights, as its metadata marks it.

    `expires_at` is when the backend may delete it; None: never.
    """

    path: str
    kind: Kind
    run_uid: str
    attempt: int
    step: int
    expires_at: datetime | None = None

    @classmethod
    def from_metadata(
        cls, path: str, kind: Kind, metadata: Mapping[str, str], expires_at: datetime | None = None
    ) -> "Checkpoint | None":
        """None for a checkpoint that is not one of ours."""
        attempt, step = metadata.get("attempt", ""), metadata.get("step", "")
        if "run_uid" not in metadata or not attempt.isdecimal() or not step.isdecimal():
            return None
        return cls(path, kind, metadata["run_uid"], int(attempt), int(step), expires_at)

    def to_wire(self) -> dict[str, str | int | None]:
        """As `/status` shows it."""
        return {"step": self.step, "statePath": self.path, "expiresAt": timestamp(self.expires_at)}


def checkpoint_name(attempt: int, step: int) -> str:
    return f"attempt-{attempt}-step-{step:06d}"


def checkpoint_metadata(run_uid: str, attempt: int, step: int) -> dict[str, str]:
    return {"run_uid": run_uid, "attempt": str(attempt), "step": str(step)}


def states_to_resume(checkpoints: Iterable[Checkpoint], run_uid: str, attempt: int) -> list[Checkpoint]:
    """The run's states, the best first: the furthest step, the newest attempt among equals.

    Raises InternalError when a newer attempt than this one has saved: two must not train the same run.
    """
    ours = _states(checkpoints, run_uid)
    newer = next((checkpoint for checkpoint in ours if checkpoint.attempt > attempt), None)
    if newer:
        raise InternalError(
            f"attempt {newer.attempt} of this run has already saved {newer.path}; attempt {attempt} ends: "
            f"two must not train the same run"
        )
    return sorted(ours, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt), reverse=True)


def superfluous_states(
    checkpoints: Iterable[Checkpoint], run_uid: str, attempt: int, *, keep: int, keep_every: int
) -> list[Checkpoint]:
    """The run's states that may be deleted: all but the `keep` newest and those of a multiple of `keep_every` steps.

    The newest are those of the newest attempt: it may have gone back to an earlier step than the one before reached.
    While `attempt` has saved nothing, nothing may go.
    """
    ours = _states(checkpoints, run_uid)
    if all(checkpoint.attempt != attempt for checkpoint in ours):
        return []
    newest_first = sorted(ours, key=lambda checkpoint: (checkpoint.attempt, checkpoint.step), reverse=True)
    return [state for state in newest_first[keep:] if not (keep_every and state.step % keep_every == 0)]


def _states(checkpoints: Iterable[Checkpoint], run_uid: str) -> list[Checkpoint]:
    return [checkpoint for checkpoint in checkpoints if checkpoint.run_uid == run_uid and checkpoint.kind == "state"]
