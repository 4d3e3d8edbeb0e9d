"""How training is kept safe when it is off policy: by the effective sample size (ESS) of what older weights sampled.

`trainer.min_ess` is the ESS that stale tokens are to have. Where they would have less, environments are asked for fewer
rollouts ahead, so that those to come are less stale. No rollout is dropped for it: it would be paid for in vain, and
long ones would be dropped first. Weights are moved as ever, so that a replayed step is the same.

Measured, also against smaller steps and trust regions: docs/explanation/off-policy.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tinker_atropos.chat.sampling import Floats, Ints
from tinker_atropos.trainer.data.datums import Datum, log_ratios, policy_steps
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP

SMOOTHING: Final = 0.2
"""Weight of the newest step in what staleness costs."""

RISE: Final = 0.5
"""How much more staleness is allowed after each step: it begins at `LEAST`, and what it costs is known only later."""

LEAST: Final = 1
"""Policy steps: with less, sampling and training would wait for each other."""


def effective_sample_size(log_ratio_N: Floats) -> float:
    """(sum w)^2 / (n sum w^2) of the weights w = p / q (Kong 1992), a fraction: 1 on policy."""
    weights_N = np.exp(log_ratio_N - log_ratio_N.max())  # at most 1: the fraction stays the same
    return float(weights_N.sum() ** 2 / (len(weights_N) * (weights_N**2).sum()))


@dataclass(frozen=True, slots=True)
class StaleTokens:
    """Among the tokens that are trained in one step, those that older weights sampled: `age` is their mean, in policy
    steps.
    """

    ess: float
    age: float


def has_stale_tokens(datums: Sequence[Datum], policy_step: int) -> bool:
    return bool(datums) and bool((_ages(datums, policy_step) > 0).any())


def stale_tokens(datums: Sequence[Datum], logprobs: Sequence[Floats], policy_step: int) -> StaleTokens | None:
    """`logprobs` are the trainer's, for each datum. None: none is stale."""
    if not datums:
        return None
    ages_N = _ages(datums, policy_step)
    stale_N = ages_N > 0
    if not stale_N.any():
        return None
    return StaleTokens(effective_sample_size(log_ratios(datums, logprobs)[stale_N]), float(ages_N[stale_N].mean()))


@dataclass(slots=True)
class AllowedStaleness:
    """How old rollouts may become, in policy steps: at most `most`, and so that their ESS stays above `min_ess`.

    -log ESS grows with the age of the tokens. What a step of age costs is measured, and smoothed; the age that costs
    -log min_ess is allowed. An attempt that continues begins with little again.
    """

    most: int
    min_ess: float
    allowed: float = field(init=False)
    _cost: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.allowed = float(min(LEAST, self.most) if self.min_ess else self.most)

    @property
    def steps(self) -> int:
        return int(self.allowed)

    def trained(self, stale: StaleTokens | None) -> None:
        """A step was trained."""
        if not self.min_ess:
            return
        if stale is not None:
            cost = max(-math.log(stale.ess), 0.0) / stale.age  # rounding makes an ESS of 1 a little more than that
            self._cost = cost if self._cost is None else self._cost + SMOOTHING * (cost - self._cost)
        self.allowed = min(max(float(LEAST), self._affordable), self.allowed + RISE, float(self.most))

    @property
    def _affordable(self) -> float:
        return -math.log(self.min_ess) / self._cost if self._cost else math.inf

    @property
    def sentence(self) -> str | None:
        """While it allows less than the run's configuration, for the status. It names no figure that changes."""
        if not self.min_ess or self._affordable >= self.most:
            return None
        return (
            f"the weights move so fast that rollouts of trainer.max_staleness ({self.most}) policy steps would teach "
            f"little: their effective sample size would be below trainer.min_ess ({self.min_ess:g}). So environments "
            f"make fewer rollouts ahead (staleness/allowed); a lower trainer.learning_rate would let them make more"
        )


def _ages(datums: Sequence[Datum], policy_step: int) -> Ints:
    """Policy steps since each trained token was sampled, [N]; 0 where that is not known."""
    steps_N = policy_steps(datums)
    ages_N: Ints = np.where(steps_N == UNKNOWN_STEP, 0, np.maximum(policy_step - steps_N, 0))
    return ages_N
