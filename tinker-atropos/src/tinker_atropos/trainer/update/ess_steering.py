"""How training is kept safe when it is off policy: by the effective sample size (ESS) of what older weights sampled.

`trainer.min_ess` is the ESS that their age is to leave stale tokens. Where it would leave less, environments are asked
for fewer rollouts ahead, so that those to come are less stale. No rollout is dropped for it: it would be paid for in
vain, and long ones would be dropped first. Weights are moved as ever, so that a replayed step is the same.

What sampler and trainer disagree about in fresh tokens, by another kernel or a temperature, costs stale ones as much:
for independent deviations, -log ESS is a sum. No fresher rollout saves that, so it is subtracted.

Measured, also against a plain bound, smaller steps and trust regions: docs/explanation/off-policy.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.trainer.data.datums import TrainingBatch, log_ratios, policy_steps
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP

SMOOTHING: Final = 0.2
"""Weight of the newest step in what staleness costs, and in what fresh tokens lose."""

RISE: Final = 0.5
"""How much more staleness is allowed after each step: it begins at `LEAST`, and what it costs is known only later."""

LEAST: Final = 1
"""Policy steps: with less, sampling and training would wait for each other."""

MOST_RATIO: Final = 8.0
"""A larger p / q counts as this one: a single token of ratio 50 brings 10,000 others to an ESS of 0.81, and capped to
0.995. A lower cap, or quantiles, would be blind to drift: four of five tokens of the demo have a ratio of 1, whatever
becomes of the others, and with a cap of 4 one run of six ended at 0.82 (3e-3, 8 steps).
"""

ENOUGH: Final = 32
"""Tokens. The ESS of fewer says nothing: that of one is 1."""


def effective_sample_size(log_ratio_N: Floats) -> float:
    """(sum w)^2 / (n sum w^2) of the weights w = p / q (Kong 1992), a fraction: 1 on policy."""
    weights_N = np.exp(log_ratio_N - log_ratio_N.max())  # at most 1: the fraction stays the same
    return float(weights_N.sum() ** 2 / (len(weights_N) * (weights_N**2).sum()))


@dataclass(frozen=True, slots=True)
class EssLosses:
    """-log ESS of the tokens trained in one step: of those that the weights being trained sampled, and of those that
    older ones did, whose mean `age` is in policy steps. None: fewer than ENOUGH. `shaped`: a group was sampled with
    temperature, top_p or top_k.
    """

    fresh: float | None = None
    stale: float | None = None
    age: float = 0.0
    shaped: bool = False


def ess_losses(
    batch: TrainingBatch, logprobs: Sequence[Floats], policy_step: int, first_datums: int | None = None
) -> EssLosses:
    """`logprobs` are the trainer's, for each datum. The others than the `first_datums` (None: all) are not looked at:
    the step's first optimizer step has moved the weights that their logprobs are of.
    """
    datums = batch.datums[:first_datums]
    if not datums:
        return EssLosses()
    log_ratio_N, steps_N = log_ratios(datums, logprobs[:first_datums]), policy_steps(datums)
    stale_N = (steps_N != UNKNOWN_STEP) & (steps_N < policy_step)
    return EssLosses(
        fresh=_loss(log_ratio_N, steps_N == policy_step),
        stale=_loss(log_ratio_N, stale_N),
        age=float((policy_step - steps_N[stale_N]).mean()) if stale_N.any() else 0.0,
        shaped=any(group.shaping is not None and not group.shaping.plain for group in batch.groups),
    )


def _loss(log_ratio_N: Floats, chosen_N: Bools) -> float | None:
    if chosen_N.sum() < ENOUGH:
        return None
    return -math.log(effective_sample_size(np.minimum(log_ratio_N[chosen_N], math.log(MOST_RATIO))))


@dataclass(slots=True)
class AllowedStaleness:
    """How old rollouts may become, in policy steps: at most `most`, and so that their age leaves them an ESS of
    `min_ess`.

    -log ESS grows with the age of the tokens, from what fresh ones lose. What a step of age costs is measured, and
    smoothed; the age that costs -log min_ess is allowed. An attempt that continues begins with little again.
    """

    most: int
    min_ess: float
    allowed: float = field(init=False)
    _fresh: float | None = field(default=None, init=False)
    _cost: float | None = field(default=None, init=False)
    _shaped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.allowed = float(min(LEAST, self.most) if self.min_ess else self.most)

    @property
    def steps(self) -> int:
        return int(self.allowed)

    def trained(self, losses: EssLosses) -> None:
        """A step was trained. Of stale tokens before the first fresh ones, all is ascribed to their age."""
        if not self.min_ess:
            return
        if losses.fresh is not None:
            self._fresh, self._shaped = _smoothed(self._fresh, losses.fresh), losses.shaped
        if losses.stale is not None:
            fresh = self._fresh or 0.0
            self._cost = _smoothed(self._cost, (losses.stale - fresh) / losses.age)
            if self._cost < 0:  # age saves nothing: fresh tokens lose less by now than when some were last seen
                self._fresh, self._cost = max(fresh + self._cost * losses.age, 0.0), 0.0
        self.allowed = min(max(float(LEAST), self._affordable), self.allowed + RISE, float(self.most))

    @property
    def _affordable(self) -> float:
        return -math.log(self.min_ess) / self._cost if self._cost else math.inf

    @property
    def sentence(self) -> str | None:
        """For the status, while age or something else costs more than the run's configuration allows. It names no
        figure that changes.
        """
        if not self.min_ess:
            return None
        causes = []
        if self._affordable < self.most:
            causes.append(
                f"the weights move so fast that rollouts of trainer.max_staleness ({self.most}) policy steps would "
                f"teach little: their age would leave them an effective sample size below trainer.min_ess "
                f"({self.min_ess:g}). So environments make fewer rollouts ahead (staleness/allowed); a lower "
                f"trainer.learning_rate would let them make more"
            )
        if (self._fresh or 0.0) > -math.log(self.min_ess):
            cause = (
                "rollouts are sampled with temperature, top_p or top_k, which the trainer's probabilities are without"
                if self._shaped
                else "the backend samples and trains with different probabilities of the same weights"
            )
            causes.append(
                f"{cause}: that alone leaves fresh rollouts an effective sample size (logprobs/ess) below "
                f"trainer.min_ess ({self.min_ess:g}). Neither fresher rollouts nor a lower learning rate would raise it"
            )
        return "; ".join(causes) or None


def _smoothed(before: float | None, value: float) -> float:
    return value if before is None else before + SMOOTHING * (value - before)
