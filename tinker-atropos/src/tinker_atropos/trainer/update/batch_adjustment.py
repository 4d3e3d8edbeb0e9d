"""What is adjusted in a batch before it is trained, by one forward pass, which is made only if it is needed."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.arrays import Floats
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.data.divergence import check_loss
from tinker_atropos.trainer.update.ess_steering import has_stale_tokens
from tinker_atropos.trainer.update.trust_region import within


async def adjusted(
    training: Training, batch: TrainingBatch, config: TrainerSettings, policy_step: int
) -> tuple[TrainingBatch, float]:
    """The batch as the loss is to see it, and the seconds that the backend took for that.

    A trust region needs the pass if a token was sampled by older weights; a loss that pulls all tokens back to their
    logprobs needs it always. Raises DivergedError.
    """
    region, anchored = config.trust_region, POLICY_LOSSES[config.loss].pulls_back
    if region != "none" and not has_stale_tokens(batch.datums, policy_step):
        region = "none"
    if region == "none" and not anchored:
        return batch, 0.0
    begun = time.perf_counter()
    logprobs = await training.forward(batch.datums)
    seconds = time.perf_counter() - begun
    check_loss(0.0, (row[datum.trained_T] for row, datum in zip(logprobs, batch.datums, strict=True)))
    datums = batch.datums if region == "none" else within(batch.datums, logprobs, region)
    return replace(batch, datums=at_rest(datums, logprobs) if anchored else datums), seconds


def at_rest(datums: Sequence[Datum], logprobs: Sequence[Floats]) -> list[Datum]:
    """With the present logprobs where nothing is trained, such as in prompts: there a pull has no gradient. The 0 that
    other losses get there would mean a probability of 1.
    """
    return [
        replace(datum, logprobs_T=np.where(datum.trained_T, datum.logprobs_T, row))
        for datum, row in zip(datums, logprobs, strict=True)
    ]
