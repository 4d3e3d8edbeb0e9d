"""One policy step: the batch's gradient, the optimizer's step, and the snapshot that sampling continues with."""

from dataclasses import dataclass

from tinker_atropos.arrays import Floats
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.step_requests import LossCall
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.update.base_kl import compared_to_base
from tinker_atropos.trainer.update.batch_adjustment import adjusted
from tinker_atropos.trainer.update.clipping import clip_metrics
from tinker_atropos.trainer.update.forward_kl import teacher_metrics
from tinker_atropos.trainer.update.optimizer import adam_at, dealt_out, gradient_metrics
from tinker_atropos.trainer.update.trust_region import mask_metrics


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
