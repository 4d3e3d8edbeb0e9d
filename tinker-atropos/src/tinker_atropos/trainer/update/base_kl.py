"""How far the policy has moved from its base model, measured at evaluations, and what that may cost in advantages.

With d = log q - log p_base of the tokens that were sampled and are trained (q as sampled):

    kl/base     mean of exp(-d) - 1 + d          estimates KL(policy || base) (k3: never negative, little variance)
    kl/base_v1  mean of d                        the same, without bias (k1; tinker-cookbook's kl_policy_base)
    A_t += kl_base_coef (mean d - d_t)           tinker-cookbook's incorporate_kl_penalty (rl/metrics.py, 0.6.1)

k1 and k3 are those of http://joschu.net/blog/kl-approx.html. The penalty has a mean of 0: it says which tokens are to
come closer to the base model, at the cost of which others. Axis: _N trained tokens of the batch that are scored.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tinker_atropos.arrays import Floats
from tinker_atropos.chat.sampling import SampleRefusedError
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch


@dataclass(frozen=True, slots=True)
class Compared:
    """A batch with its penalties, what was measured, how long the backend took, and warnings by topic."""

    batch: TrainingBatch
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: dict[str, str | None] = field(default_factory=dict)


async def compared_to_base(training: Training, batch: TrainingBatch, config: RunConfig, step: int) -> Compared:
    """Ask the base model about a batch where that is due: in every step with a coefficient, else before evaluations.

    `step` counts the steps before. A backend that does not sample from its base model is refused with a coefficient
    when training is opened; without, the metric is missing and a warning says why.
    """
    coefficient = config.tinker.kl_base_coef
    if not coefficient and not config.env.evaluates_at(step + 1):
        return Compared(batch)
    begun = time.perf_counter()
    try:
        rows = await training.base_logprobs(config.base_model, [datum.tokens_T for datum in batch.datums])
    except SampleRefusedError as error:
        warning = f"the distance from the base model (kl/base) is unknown: {error}"
        return Compared(batch, {}, time.perf_counter() - begun, {"base": warning})
    seconds, apart = time.perf_counter() - begun, differences(batch.datums, rows)
    datums = penalized(batch.datums, apart, coefficient)
    return Compared(replace(batch, datums=datums), base_metrics(np.concatenate(apart)), seconds, {"base": None})


def differences(datums: Sequence[Datum], base_rows: Sequence[Floats]) -> list[Floats]:
    """Of each datum's positions: d, NaN where nothing is trained, or the base model's logprob is unknown."""
    return [
        np.where(datum.trained_T, datum.logprobs_T - base_T[1:], np.nan)
        for datum, base_T in zip(datums, base_rows, strict=True)
    ]


def base_metrics(apart: Floats) -> dict[str, float]:
    """Empty if no trained token was scored."""
    apart_N = apart[np.isfinite(apart)]
    if not len(apart_N):
        return {}
    return {
        "kl/base": float((np.expm1(-apart_N) + apart_N).mean()),
        "kl/base_v1": float(apart_N.mean()),
    }


def penalized(datums: Sequence[Datum], apart: Sequence[Floats], coefficient: float) -> list[Datum]:
    """The datums with coefficient * (mean d - d_t) added to the advantages of tokens that the base model has scored."""
    apart_N = np.concatenate(apart)
    apart_N = apart_N[np.isfinite(apart_N)]
    if not coefficient or not len(apart_N):
        return list(datums)
    mean = apart_N.mean()
    return [
        replace(datum, advantages_T=datum.advantages_T + np.where(np.isfinite(d_T), coefficient * (mean - d_T), 0.0))
        for datum, d_T in zip(datums, apart, strict=True)
    ]
