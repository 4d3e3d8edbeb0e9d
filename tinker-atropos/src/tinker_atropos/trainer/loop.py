"""The training loop, on one screen.

One iteration is one policy step: a batch of groups is taken, advantages are computed within each group, one
forward_backward and one optimizer step update the weights, and inference goes on with the new snapshot.
"""

import logging
import time
from collections.abc import Mapping
from typing import Protocol

from tinker_atropos.config import TinkerSection
from tinker_atropos.trainer.advantages import ADVANTAGES
from tinker_atropos.trainer.backend import Training
from tinker_atropos.trainer.datums import build_batch
from tinker_atropos.trainer.ledger import Ledger
from tinker_atropos.trainer.metrics import batch_metrics, training_metrics
from tinker_atropos.trainer.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.rollouts import Group
from tinker_atropos.trainer.status import Phase

logger = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What the loop needs of the run around it."""

    async def next_groups(self) -> list[Group] | None:
        """The next batch; None when the run is asked to stop."""
        ...

    def enter(self, phase: Phase) -> None: ...

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None: ...

    async def save(self, step: int) -> None: ...


async def train(
    surroundings: Surroundings,
    *,
    training: Training,
    policy: CurrentPolicy,
    ledger: Ledger,
    config: TinkerSection,
    steps: range,
) -> None:
    """Train `steps`, the number of steps trained before each iteration. Returns early when asked to stop."""
    advantage = ADVANTAGES[config.advantage]
    for step in steps:
        started = time.perf_counter()
        surroundings.enter("sampling")
        groups = await surroundings.next_groups()
        if groups is None:
            return
        taken = time.perf_counter()

        surroundings.enter("training")
        policy_step = policy.latest.step if policy.latest else step
        batch = build_batch(groups, advantage, ledger, config.max_token_trainer_length)
        metrics = batch_metrics(groups, batch, policy_step)
        if batch.datums:  # else nothing has an advantage: a step without a gradient
            output = await training.step(batch.datums, config.loss, config.learning_rate)
            policy.swap(Policy(step + 1, output.sampler))
            metrics |= training_metrics(batch, output.logprobs, output.loss_sum, policy_step)
        trained = time.perf_counter()

        metrics["train/learning_rate"] = config.learning_rate
        metrics |= {"time/waiting": taken - started, "time/training": trained - taken, "time/step": trained - started}
        await surroundings.step_trained(step + 1, trained - started, metrics)
        if (step + 1) % config.save_checkpoint_interval == 0 or step + 1 == steps.stop:
            surroundings.enter("saving")
            await surroundings.save(step + 1)
