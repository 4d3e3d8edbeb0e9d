"""What the trainer trains on: groups of scored sequences, as arrays.

Axes: _R rollouts of one group, _S its sequences (a rollout has several when a prompt did not extend the one before),
_T tokens of one sequence, prompt included.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinker_atropos.chat.sampling import Bools, Floats, Ints

UNKNOWN_STEP = -1


@dataclass(frozen=True, slots=True)
class TeacherTopK:
    """The tokens that a teacher gives the most probability to at each position, and their shares of it, [T, K]. The
    shares of a position add up to 1, or are all 0 where it said nothing.
    """

    tokens_TK: Ints
    shares_TK: Floats

    @property
    def spoken_T(self) -> Bools:
        return np.asarray(self.shares_TK.any(axis=-1))

    def predicting(self, trained_T: Bools) -> "TeacherTopK | None":
        """Those of T-1 predictions that are trained; None if it said nothing of them."""
        shares_TK = np.where(trained_T[:, None], self.shares_TK[1:], 0.0)
        return TeacherTopK(self.tokens_TK[1:], shares_TK) if shares_TK.any() else None


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One scored sequence. What is unknown is NaN in `logprobs_T` and UNKNOWN_STEP in `policy_step_T`.

    `generated_T` marks what is to be trained, and `marked_T` what the environment said was generated. `advantages_T`
    replaces the score if the environment sent it. `teacher_logprobs_T` is for the sequence's own tokens, NaN where the
    teacher scored another token; one that names several tokens per position gives `teacher_topk` instead. `muted`: the
    environment wants no advantage here, although the score counts in the group's baseline. `recomputed_T`: the logprob
    is not the sampler's, but by a forward pass of a later policy. `truncated`: its last generation ended by length, and
    not where the policy would have; unknown counts as no.
    """

    tokens_T: Ints
    generated_T: Bools
    logprobs_T: Floats
    policy_step_T: Ints
    score: float
    advantages_T: Floats | None = None
    teacher_logprobs_T: Floats | None = None
    muted: bool = False
    marked_T: Bools | None = None
    recomputed_T: Bools | None = None
    truncated: bool = False
    teacher_topk: TeacherTopK | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What a group says besides what is trained, for people to read. `components_R` are the parts of each rollout's
    reward by name, and `messages_S` the conversation that each sequence belongs to. None: not said.
    """

    item: Any = None
    components_R: Sequence[Mapping[str, float]] | None = None
    messages_S: Sequence[Any] | None = None
    environment: int | None = None


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the tokens of a group were sampled."""

    temperature: float
    top_p: float
    top_k: int

    @property
    def plain(self) -> bool:
        """From the policy's own distribution."""
        return self.temperature == 1.0 and self.top_p >= 1.0 and self.top_k < 1


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one item, whose scores are compared with each other. `rollout_of_S` counts from 0.

    `received_at` is when the trajectory API received it (seconds since the epoch): its samples are older. `shaping`
    None: not all of it was sampled alike, or it is not known.
    """

    sequences_S: tuple[TokenSequence, ...]
    rollout_of_S: Ints
    unknown_overrides: tuple[str, ...] = ()
    received_at: float = math.inf
    story: Story = field(default_factory=Story)
    shaping: Shaping | None = None

    @property
    def rollout_count(self) -> int:
        return int(self.rollout_of_S.max()) + 1

    @property
    def scores_R(self) -> Floats:
        """The score of each rollout, which all its sequences carry."""
        return np.array([sequence.score for sequence in self._last_R], np.float64)

    @property
    def truncated_R(self) -> Bools:
        """Whether the last sequence of each rollout was cut off by length."""
        return np.array([sequence.truncated for sequence in self._last_R], np.bool_)

    @property
    def _last_R(self) -> list[TokenSequence]:
        """The last sequence of each rollout."""
        last = dict(zip(self.rollout_of_S.tolist(), self.sequences_S, strict=True))
        return [last[rollout] for rollout in range(len(last))]

    @property
    def sampled_tokens_R(self) -> Floats:
        """How many tokens were generated for each rollout, in all its sequences."""
        generated_S = [np.count_nonzero(sequence.generated_T) for sequence in self.sequences_S]
        return np.bincount(self.rollout_of_S, generated_S, self.rollout_count).astype(np.float64)
