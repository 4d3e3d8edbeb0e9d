"""What became of each group of one trained step. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.arrays import Bools, Floats
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.data.reward_shaping import group_advantages, masked_rollouts
from tinker_atropos.trainer.rollouts.group_records import GroupFacts, TrainedSequence
from tinker_atropos.trainer.trajectories.batch_collector import Collected, DroppedGroup
from tinker_atropos.trainer.update.trust_region import clipped_tokens


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """`logprobs` are those of forward_backward, for each datum of the batch; empty if nothing was trained."""

    collected: Collected
    batch: TrainingBatch
    logprobs: Sequence[Floats] = ()


def group_facts(step: TrainedStep, config: TrainerSettings) -> Iterator[GroupFacts]:
    """Of the batch's groups, then of those that were dropped."""
    datums_of: dict[int, list[tuple[Datum, Floats]]] = {}
    for datum, logprobs_T in zip(step.batch.datums, step.logprobs, strict=True):
        datums_of.setdefault(datum.group, []).append((datum, logprobs_T))
    trained = left_out = 0
    for index, group in enumerate(step.batch.groups):
        advantages_R = group_advantages(group, config)
        masked_S = masked_rollouts(group, config)[group.rollout_of_S]
        datums = iter(datums_of.get(index, ()))
        if index in datums_of:
            trained_S = [
                trained_sequence(*next(datums), config) if sequence.generated_T[1:].any() and not masked else None
                for sequence, masked in zip(group.sequences_S, masked_S, strict=True)
            ]
            yield GroupFacts(group, "trained", trained, advantages_R, trained_S, masked_S=masked_S)
            trained += 1
        else:
            yield GroupFacts(group, "no_advantage", left_out, advantages_R, masked_S=masked_S)
            left_out += 1
    yield from map(_dropped, range(len(step.collected.unusable)), step.collected.unusable)


def _dropped(number: int, dropped: DroppedGroup) -> GroupFacts:
    return GroupFacts(dropped.group, "dropped", number, reason=dropped.reason, why=dropped.why)


def trained_sequence(datum: Datum, logprobs_T: Floats, config: TrainerSettings) -> TrainedSequence:
    """Shifted back: prediction t of a datum is of token t + 1."""
    clipped_T = _nowhere(datum)
    clipped_T[datum.trained_T] = clipped_tokens([datum], [logprobs_T], config)
    return TrainedSequence(
        trained_T=np.concatenate([[False], datum.trained_T]),
        advantages_T=_of_tokens(datum.advantages_T),
        logprobs_T=_of_tokens(logprobs_T),
        clipped_T=np.concatenate([[False], clipped_T]),
        masked_T=np.concatenate([[False], _nowhere(datum) if datum.masked_T is None else datum.masked_T]),
        taught_T=np.concatenate([[False], _nowhere(datum) if datum.teacher is None else datum.teacher.spoken_T]),
    )


def _nowhere(datum: Datum) -> Bools:
    return np.zeros(len(datum.trained_T), np.bool_)


def _of_tokens(predictions_T: Floats) -> Floats:
    return np.concatenate([[0.0], predictions_T])
