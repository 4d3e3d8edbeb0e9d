"""One policy step: the batch's gradient, the optimizer's step, and the snapshot that sampling continues with."""

from dataclasses import dataclass

from tinker_atropos.arrays import Floats
from tinker_atropos.config.tinker_section import TinkerSection
from tinker_atropos.trainer.backend.backend import AdamStep, LossCall, Training
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.data.datums import TrainingBatch, loss_config


@dataclass(frozen=True, slots=True)
class Updated:
    """`batch` is what the loss was computed of; `logprobs` per datum are under the weights before the step, `loss_sum`
    is a sum over tokens, `seconds` is how long each call to the backend was awaited.
    """

    batch: TrainingBatch
    logprobs: list[Floats]
    loss_sum: float
    sampler: Sampler
    metrics: dict[str, float]
    seconds: dict[str, float]


async def update_policy(training: Training, batch: TrainingBatch, config: TinkerSection) -> Updated:
    """Train on a batch. Raises DivergedError."""
    loss = LossCall(config.loss, loss_config(config) or {})
    output = await training.step(batch.datums, loss, AdamStep(config.learning_rate))
    metrics = {"train/learning_rate": config.learning_rate}
    return Updated(batch, output.logprobs, output.loss_sum, output.sampler, metrics, output.seconds)
