"""Checkpoints of a run: how they are named and marked, and which one a new attempt goes on from. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tinker_atropos.errors import InternalError

Kind = Literal["state", "sampler"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state (trainable, with optimizer) or sampler weights, as its metadata marks it."""

    path: str
    kind: Kind
    run_uid: str
    attempt: int
    step: int

    @classmethod
    def from_metadata(cls, path: str, kind: Kind, metadata: Mapping[str, str]) -> "Checkpoint | None":
        """None for a checkpoint that is not one of ours."""
        attempt, step = metadata.get("attempt", ""), metadata.get("step", "")
        if "run_uid" not in metadata or not attempt.isdecimal() or not step.isdecimal():
            return None
        return cls(path, kind, metadata["run_uid"], int(attempt), int(step))


def checkpoint_name(attempt: int, step: int) -> str:
    return f"attempt-{attempt}-step-{step:06d}"


def checkpoint_metadata(run_uid: str, attempt: int, step: int) -> dict[str, str]:
    return {"run_uid": run_uid, "attempt": str(attempt), "step": str(step)}


def newest_state(checkpoints: Iterable[Checkpoint], run_uid: str, attempt: int) -> Checkpoint | None:
    """The state to go on from: the run's furthest step, the newest attempt among equals.

    Raises InternalError when a newer attempt than this one has saved: two must not train the same run.
    """
    ours = [checkpoint for checkpoint in checkpoints if checkpoint.run_uid == run_uid and checkpoint.kind == "state"]
    newer = [checkpoint for checkpoint in ours if checkpoint.attempt > attempt]
    if newer:
        raise InternalError(
            f"attempt {newer[0].attempt} of this run has already saved {newer[0].path}; attempt {attempt} ends"
        )
    return max(ours, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt), default=None)
