"""One policy step: the batch's gradient, the optimizer's step, and the snapshot that sampling continues with.

`distil/forward_kl` says how far the policy is from a teacher that names its K likeliest tokens, before the step.

With w the teacher's probabilities of its K tokens, divided by their sum, and p the trainer's of the same tokens, a
token's forward KL is sum over K of w (log w - log p). It is 0 only if the policy samples these tokens as often, and no
other. Axes: _T predictions of one sequence, _K tokens, _N taught tokens of the batch.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.arrays import Floats
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.step_requests import LossCall, taught
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch
from tinker_atropos.trainer.data.divergence import check_loss
from tinker_atropos.trainer.data.groups import TeacherTopK
from tinker_atropos.trainer.update.base_kl import compared_to_base
from tinker_atropos.trainer.update.ess_steering import has_stale_tokens
from tinker_atropos.trainer.update.optimizer import adam_at, dealt_out, gradient_metrics
from tinker_atropos.trainer.update.trust_region import clip_metrics, mask_metrics, within


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


def teacher_metrics(datums: Sequence[Datum], teacher_logprobs: Sequence[Floats]) -> dict[str, float]:
    """`teacher_logprobs` [T, K] are the trainer's, for each taught datum. Empty without one."""
    rows = zip(taught(datums), teacher_logprobs, strict=True)
    found = [forward_kl(teacher, row_TK)[teacher.spoken_T] for (_, teacher), row_TK in rows]
    return {"distil/forward_kl": float(np.concatenate(found).mean())} if found else {}


def forward_kl(teacher: TeacherTopK, logprobs_TK: Floats) -> Floats:
    """Of each prediction; 0 where the teacher said nothing."""
    shares_TK = teacher.shares_TK
    named_TK = shares_TK > 0
    log_shares_TK = np.log(np.where(named_TK, shares_TK, 1.0))
    kl_T: Floats = np.where(named_TK, shares_TK * (log_shares_TK - logprobs_TK), 0.0).sum(axis=-1)
    return kl_T


@dataclass(frozen=True, slots=True)
class Updated:
    """`batch` is what the loss was computed of; `logprobs` per datum are under the weights before its optimizer step,
    and the first `first_datums` are of the first one; `loss_sum` is a sum over tokens, `seconds` is how long each call
    to the backend was awaited, and `warnings` are by topic.
    """

    batch: TrainingBatch
    logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
    metrics: dict[str, float]
    seconds: dict[str, float]
    first_datums: int
    warnings: dict[str, str | None]


async def update_policy(training: Training, batch: TrainingBatch, config: RunConfig, step: int) -> Updated:
    """Train on a batch after `step` policy steps. Raises DivergedError."""
    compared = await compared_to_base(training, batch, config, step)
    batch, forward_seconds = await adjusted(training, compared.batch, config.tinker, step)
    adam = adam_at(step, config)
    loss = LossCall.of_run(config.tinker)
    shares = dealt_out(batch.datums, config.tinker.num_substeps)
    output = await training.step(shares, loss, adam)
    metrics = {"train/learning_rate": adam.learning_rate} | gradient_metrics(output.optimizer_metrics)
    clipped = clip_metrics(batch.datums, output.logprobs, config.tinker)
    learned = teacher_metrics(batch.datums, output.teacher_logprobs)
    return Updated(
        batch=batch,
        logprobs=output.logprobs,
        loss_sum=output.loss_sum,
        sampler=output.sampler,
        metrics=metrics | compared.metrics | mask_metrics(batch) | clipped | learned,
        seconds=output.seconds | {"base_logprobs": compared.seconds, "forward": forward_seconds},
        first_datums=len(shares[0]),
        warnings=compared.warnings,
    )
