"""From groups to training sequences. Pure: no SDK, no I/O.

A sequence of T tokens is T-1 predictions: position t of the input predicts token t+1, so targets, logprobs and
advantages are shifted by one relative to the tokens. Positions that were not generated are zero and not trained.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats, Ints
from tinker_atropos.trainer.data.advantages import group_advantages, masked_rollouts
from tinker_atropos.trainer.data.groups import Group, TeacherTopK, TokenSequence

LEFT_OUT_REASONS = ("no_advantage", "nothing_generated", "truncated_masked")


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence; all arrays have the length T-1 of its input.

    `distilled_T` is the teacher's term within the advantages, NaN where it gave none; None without a teacher.
    `group` and `rollout` count from 0 within the batch and within the group. `teacher`: what a teacher would sample,
    where the datum is trained on it (forward KL); None: nowhere.
    """

    input_T: Ints
    target_T: Ints
    logprobs_T: Floats
    advantages_T: Floats
    trained_T: Bools
    policy_step_T: Ints
    distilled_T: Floats | None
    score: float
    group: int
    rollout: int
    teacher: TeacherTopK | None = None

    @property
    def has_gradient(self) -> bool:
        return self.teacher is not None or bool(self.advantages_T.any())

    @property
    def tokens_T(self) -> Ints:
        """The whole sequence, one longer than the other arrays."""
        return np.concatenate([self.input_T, self.target_T[-1:]])


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """What one optimizer step trains on, in the groups' order.

    `left_out` counts what is not trained, by reason: rollouts of groups without an advantage, sequences in which
    nothing was generated, and rollouts that are masked because they were cut off by length.
    """

    groups: Sequence[Group] = ()
    datums: list[Datum] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEFT_OUT_REASONS, 0))

    @property
    def sequences(self) -> int:
        """The sequences of all groups, trained or not."""
        return sum(len(group.sequences_S) for group in self.groups)

    @property
    def trained_rollouts(self) -> int:
        return len({(datum.group, datum.rollout) for datum in self.datums})

    @property
    def trained_tokens(self) -> int:
        return trained_tokens(self.datums)


def build_batch(groups: Sequence[Group], config: TrainerSettings) -> TrainingBatch:
    """Turn groups into datums. A group in which every advantage is zero, and of which no teacher spoke, has no gradient
    and is left out.
    """
    batch = TrainingBatch(groups)
    for index, group in enumerate(groups):
        advantages_R, masked_R = group_advantages(group, config), masked_rollouts(group, config)
        batch.left_out["truncated_masked"] += int(masked_R.sum())
        found = [
            build_datum(sequence, float(advantages_R[rollout]), config.distill_coefficient, (index, rollout))
            for sequence, rollout in zip(group.sequences_S, group.rollout_of_S.tolist(), strict=True)
            if not masked_R[rollout]
        ]
        datums = [datum for datum in found if datum is not None]
        if any(datum.has_gradient for datum in datums):
            batch.datums.extend(datums)
            batch.left_out["nothing_generated"] += len(found) - len(datums)
        else:
            batch.left_out["no_advantage"] += int((~masked_R).sum())
    return batch


def build_datum(
    sequence: TokenSequence, advantage: float, distill_coefficient: float, place: tuple[int, int]
) -> Datum | None:
    """Shift one sequence of T tokens into T-1 predictions; None if nothing after its first token was generated."""
    trained_T = sequence.generated_T[1:]
    if not trained_T.any():
        return None
    distilled_T = None if sequence.muted else distillation(sequence, distill_coefficient)
    advantages_T = token_advantages(sequence, advantage, distilled_T)
    teacher = None if sequence.muted or not distill_coefficient else sequence.teacher_topk
    return Datum(
        input_T=sequence.tokens_T[:-1],
        target_T=sequence.tokens_T[1:],
        logprobs_T=np.where(trained_T, sequence.logprobs_T[1:], 0.0),
        advantages_T=np.where(trained_T, advantages_T[1:], 0.0),
        trained_T=trained_T,
        policy_step_T=sequence.policy_step_T[1:],
        distilled_T=None if distilled_T is None else distilled_T[1:],
        score=sequence.score,
        group=place[0],
        rollout=place[1],
        teacher=None if teacher is None else teacher.predicting(trained_T),
    )


def token_advantages(sequence: TokenSequence, advantage: float, distilled_T: Floats | None) -> Floats:
    """A_t: the environment's own per token, else the rollout's on every token; the teacher's term is added."""
    if sequence.muted:
        return np.zeros(len(sequence.tokens_T))
    advantages_T = sequence.advantages_T
    if advantages_T is None:
        advantages_T = np.full(len(sequence.tokens_T), advantage)
    return advantages_T if distilled_T is None else advantages_T + np.nan_to_num(distilled_T, nan=0.0)


def distillation(sequence: TokenSequence, coefficient: float) -> Floats | None:
    """On-policy distillation by a teacher that scores the sampled tokens: coefficient * (log p_teacher - log p_sampler)
    for each.

    Its expectation under the sampler is minus the reverse KL to the teacher (Thinking Machines, "On-Policy
    Distillation", 2025; tinker-cookbook's distillation.train_on_policy adds the same to its advantages).
    """
    if sequence.teacher_logprobs_T is None:
        return None
    return coefficient * (sequence.teacher_logprobs_T - sequence.logprobs_T)


def loss_config(config: TrainerSettings) -> dict[str, float] | None:
    """The thresholds, for the losses that clip, and dro's beta. Always sent, so that no backend's defaults can differ
    from ours; other losses reject them.
    """
    if POLICY_LOSSES[config.loss].pulls_back:
        return {"beta": config.dro_beta}
    thresholds = config.clip_thresholds
    return None if thresholds is None else thresholds.as_loss_config()


Scalar = TypeVar("Scalar", np.int64, np.float64)


def of_trained(datums: Sequence[Datum], rows: Iterable[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """From a row for each datum, as long as its own arrays: the values of the trained tokens, [N]."""
    trained = np.concatenate([datum.trained_T for datum in datums])
    found_N: npt.NDArray[Scalar] = np.concatenate(list(rows))[trained]
    return found_N


def policy_steps(datums: Sequence[Datum]) -> Ints:
    """The policy steps that sampled the trained tokens, [N]."""
    return of_trained(datums, (datum.policy_step_T for datum in datums))


def log_ratios(datums: Sequence[Datum], logprobs: Sequence[Floats]) -> Floats:
    """The log ratios of the trained tokens, [N]: log p - log q. `logprobs` are the trainer's, for each datum."""
    return of_trained(datums, logprobs) - of_trained(datums, (datum.logprobs_T for datum in datums))


def trained_tokens(datums: Sequence[Datum]) -> int:
    return sum(int(np.count_nonzero(datum.trained_T)) for datum in datums)


def lengths(datums: Sequence[Datum]) -> Ints:
    """How many tokens of each datum are trained: one at least."""
    return np.array([np.count_nonzero(datum.trained_T) for datum in datums])


def sequence_means(values_N: Floats, lengths_S: Ints) -> Floats:
    """The mean over the trained tokens of each datum."""
    starts_S = np.cumsum(lengths_S) - lengths_S
    means_S: Floats = np.add.reduceat(values_N, starts_S) / lengths_S
    return means_S
