"""What the trainer trains on: groups of scored sequences as arrays, made once from the wire form.

Axes: _R rollouts of one group, _S its sequences (a rollout has several when a prompt did not extend the one before),
_T tokens of one sequence, prompt included.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tinker_atropos import wire

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN_STEP = -1


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One scored sequence. What is unknown is NaN in `logprobs_T` and UNKNOWN_STEP in `policy_step_T`.

    `generated_T` marks what is to be trained. `advantages_T` stands instead of the score when the environment sent it.
    `teacher_logprobs_T` is of the sequence's own tokens, NaN where the teacher spoke of another token. `muted`: the
    environment wants no advantage here, though the score counts in the group's baseline.
    """

    tokens_T: Ints
    generated_T: Bools
    logprobs_T: Floats
    policy_step_T: Ints
    score: float
    advantages_T: Floats | None = None
    teacher_logprobs_T: Floats | None = None
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one item, whose scores are compared with each other. `rollout_of_S` counts from 0."""

    sequences_S: tuple[TokenSequence, ...]
    rollout_of_S: Ints
    unknown_overrides: tuple[str, ...] = ()

    @property
    def rollout_count(self) -> int:
        return int(self.rollout_of_S.max()) + 1

    @property
    def scores_R(self) -> Floats:
        """The score of each rollout: its sequences all carry it."""
        first_R = np.unique(self.rollout_of_S, return_index=True)[1]
        return np.array([self.sequences_S[index].score for index in first_R], np.float64)

    @classmethod
    def from_wire(cls, group: wire.Group) -> "Group":
        overrides_S = group.overrides or [{}] * group.size
        return cls(
            sequences_S=tuple(_sequence(group, index, overrides) for index, overrides in enumerate(overrides_S)),
            rollout_of_S=np.array(group.rollout_of_S, np.int64),
            unknown_overrides=tuple(sorted({name for overrides in overrides_S for name in overrides} - {MUTE})),
        )


MUTE = "set_advantage_to_zero"
"""The one key of `overrides` that Atropos' trainers honour."""


def _sequence(group: wire.Group, index: int, overrides: dict[str, Any]) -> TokenSequence:
    tokens_T = np.array(group.tokens[index], np.int64)
    return TokenSequence(
        tokens_T=tokens_T,
        generated_T=np.array(group.masks[index], np.int64) != wire.PROMPT_MASK,
        logprobs_T=_reported_logprobs(group, index),
        policy_step_T=np.full(len(tokens_T), UNKNOWN_STEP, np.int64),
        score=group.scores[index],
        advantages_T=None if group.advantages is None else np.array(group.advantages[index], np.float64),
        teacher_logprobs_T=_teacher_logprobs(group, index, tokens_T),
        muted=bool(overrides.get(MUTE)),
    )


def _reported_logprobs(group: wire.Group, index: int) -> Floats:
    """NaN where nothing is known: environments write 1.0 there (a logprob is never positive), or send nothing."""
    if group.inference_logprobs is None:
        return np.full(len(group.tokens[index]), np.nan)
    logprobs_T = np.array(group.inference_logprobs[index], np.float64)
    logprobs_T[logprobs_T > 0] = np.nan
    return logprobs_T


def _teacher_logprobs(group: wire.Group, index: int, tokens_T: Ints) -> Floats | None:
    """Of the tokens that were sampled; the teacher names one token per position (K = 1)."""
    if group.distill_token_ids is None or group.distill_logprobs is None:
        return None
    teacher_T = np.array(group.distill_token_ids[index], np.int64)[:, 0]
    return np.where(teacher_T == tokens_T, np.array(group.distill_logprobs[index], np.float64)[:, 0], np.nan)
