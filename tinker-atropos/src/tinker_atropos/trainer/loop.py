"""The training loop, on one screen.

One iteration is one policy step: a batch of groups is taken, advantages are computed within each group, one
forward_backward and one optimizer step update the weights, and inference continues with the new snapshot.
"""

from collections.abc import Mapping
from typing import Protocol

from rl_contract.trainer_messages import Phase
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.reporting.step_metrics import (
    Stopwatch,
    batch_metrics,
    collection_metrics,
    kl_warning,
    recomputed_warning,
    training_metrics,
)
from tinker_atropos.trainer.rollouts.rollout_lines import TrainedStep
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.update.policy_update import update_policy


class LoopSurroundings(Protocol):
    """What the loop needs from the run around it."""

    async def next_batch(self, step: int) -> Collected | None:
        """The groups that step `step` trains on; None if the run is asked to stop."""
        ...

    def enter(self, phase: Phase) -> None: ...

    def warn(self, topic: str, sentence: str | None) -> None:
        """Show a warning under its topic; None clears it."""
        ...

    async def step_trained(
        self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep, /
    ) -> None: ...

    def saves_at(self, step: int) -> bool:
        """Whether the weights after `step` steps are to be saved: at the interval, for an evaluation, at the end."""
        ...

    async def save(self, step: int) -> None: ...


async def train(
    surroundings: LoopSurroundings, *, training: Training, policy: CurrentPolicy, config: RunConfig, steps: range
) -> None:
    """Train `steps`, the number of steps trained before each iteration. Returns early when asked to stop."""
    watch = Stopwatch()
    for step in steps:
        surroundings.enter("sampling")
        collected = await surroundings.next_batch(step)
        if collected is None:
            return
        watch.spent("preparing", {"waiting": collected.waited})

        surroundings.enter("training")
        batch = build_batch(collected.groups, config.tinker)
        metrics = collection_metrics(collected, batch) | batch_metrics(batch, step)
        surroundings.warn("recomputed", recomputed_warning(collected.recomputed, batch.sequences))
        trained = TrainedStep(collected, batch)
        if batch.datums:
            watch.spent("preparing")
            updated = await update_policy(training, batch, config, step)
            watch.spent("preparing", updated.seconds)
            policy.swap(Policy(step + 1, updated.sampler))
            metrics |= updated.metrics
            metrics |= training_metrics(updated.batch, updated.logprobs, updated.loss_sum, step, updated.first_datums)
            trained = TrainedStep(collected, updated.batch, updated.logprobs, updated.first_datums)
            for topic, warning in updated.warnings.items():
                surroundings.warn(topic, warning)
            surroundings.warn("kl", kl_warning(metrics, config.tinker.kl_warning))
        elif policy.latest is not None:  # nothing has an advantage: the step counts, the weights do not change
            policy.swap(Policy(step + 1, policy.latest.sampler))

        metrics |= watch.lap()
        await surroundings.step_trained(step + 1, metrics["time/step"], metrics, trained)
        watch.spent("reporting")
        if surroundings.saves_at(step + 1):
            surroundings.enter("saving")
            await surroundings.save(step + 1)
            watch.spent("saving")
