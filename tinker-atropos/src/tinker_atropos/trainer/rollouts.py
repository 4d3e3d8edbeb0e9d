"""What the trainer trains on: rollouts and their groups as arrays, made once from the wire form.

Axes: _G rollouts of one group, _T tokens of one sequence, prompt included.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinker_atropos import wire

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One scored sequence. `logprobs_T` is NaN where the environment sent no logprob."""

    tokens_T: Ints
    generated_T: Bools
    logprobs_T: Floats
    score: float


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one item, whose scores are compared with each other."""

    rollouts_G: tuple[Rollout, ...]

    @property
    def scores_G(self) -> Floats:
        return np.array([rollout.score for rollout in self.rollouts_G], np.float64)

    @classmethod
    def from_wire(cls, group: wire.Group) -> "Group":
        reported = group.inference_logprobs or [[]] * group.size
        return cls(
            tuple(
                Rollout(
                    tokens_T=np.array(tokens, np.int64),
                    generated_T=np.array(mask, np.int64) != wire.PROMPT_MASK,
                    logprobs_T=_reported_logprobs(row, len(tokens)),
                    score=score,
                )
                for tokens, mask, score, row in zip(group.tokens, group.masks, group.scores, reported, strict=True)
            )
        )


def _reported_logprobs(row: list[float], length: int) -> Floats:
    """NaN where nothing is known: environments write 1.0 there (a logprob is never positive), or send nothing."""
    if len(row) != length:
        return np.full(length, np.nan)
    logprobs_T = np.array(row, np.float64)
    return np.where(logprobs_T > 0, np.nan, logprobs_T)
