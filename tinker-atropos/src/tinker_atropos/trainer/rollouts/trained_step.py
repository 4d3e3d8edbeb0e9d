"""What became of each group of one trained step. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinker_atropos.arrays import Bools, Floats
from tinker_atropos.config.tinker_section import TinkerSection
from tinker_atropos.trainer.data.advantages import ADVANTAGES, advantages
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.rollouts.group_records import GroupFacts, TrainedSequence
from tinker_atropos.trainer.trajectories.batch_collector import Collected, DroppedGroup


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """`logprobs` are those of forward_backward, for each datum of the batch; empty if nothing was trained."""

    collected: Collected
    batch: TrainingBatch
    logprobs: Sequence[Floats] = ()


def group_facts(step: TrainedStep, config: TinkerSection) -> Iterator[GroupFacts]:
    """Of the batch's groups, then of those that were dropped."""
    datums_of: dict[int, list[tuple[Datum, Floats]]] = {}
    for datum, logprobs_T in zip(step.batch.datums, step.logprobs, strict=True):
        datums_of.setdefault(datum.group, []).append((datum, logprobs_T))
    trained = left_out = 0
    for index, group in enumerate(step.batch.groups):
        advantages_R = advantages(group.scores_R, ADVANTAGES[config.advantage])
        datums = iter(datums_of.get(index, ()))
        if index in datums_of:
            trained_S = [
                trained_sequence(*next(datums), config) if sequence.generated_T[1:].any() else None
                for sequence in group.sequences_S
            ]
            yield GroupFacts(group, "trained", trained, advantages_R, trained_S)
            trained += 1
        else:
            yield GroupFacts(group, "no_advantage", left_out, advantages_R)
            left_out += 1
    yield from map(_dropped, range(len(step.collected.unusable)), step.collected.unusable)


def _dropped(number: int, dropped: DroppedGroup) -> GroupFacts:
    return GroupFacts(dropped.group, "dropped", number, reason=dropped.reason, why=dropped.why)


def trained_sequence(datum: Datum, logprobs_T: Floats, config: TinkerSection) -> TrainedSequence:
    """Shifted back: prediction t of a datum is of token t + 1."""
    return TrainedSequence(
        trained_T=np.concatenate([[False], datum.trained_T]),
        advantages_T=_of_tokens(datum.advantages_T),
        logprobs_T=_of_tokens(logprobs_T),
        clipped_T=np.concatenate([[False], clipped(datum, logprobs_T, config)]),
    )


def clipped(datum: Datum, logprobs_T: Floats, config: TinkerSection) -> Bools:
    """Where ppo's objective min(r A, clip(r) A) has no gradient: r = p / q is past the threshold that A pushes it to
    (Schulman et al. 2017, arXiv:1707.06347, equation 7). The other losses have one everywhere.
    """
    thresholds = config.clip_thresholds
    if config.loss != "ppo" or thresholds is None:
        return np.zeros(len(datum.trained_T), np.bool_)
    log_ratio_T = np.where(datum.trained_T, logprobs_T - datum.logprobs_T, 0.0)
    up_T = (datum.advantages_T > 0) & (log_ratio_T > np.log(thresholds.high))
    with np.errstate(divide="ignore"):  # a threshold of 0 is below every ratio
        down_T = (datum.advantages_T < 0) & (log_ratio_T < np.log(thresholds.low))
    found: Bools = datum.trained_T & (up_T | down_T)
    return found


def _of_tokens(predictions_T: Floats) -> Floats:
    return np.concatenate([[0.0], predictions_T])
