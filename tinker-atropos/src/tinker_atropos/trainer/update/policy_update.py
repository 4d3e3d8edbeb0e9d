"""One policy step: the batch's gradient, the optimizer's step, and the snapshot that sampling continues with.

`distil/forward_kl` says how far the policy is from a teacher that names its K likeliest tokens, before the step.

With w the teacher's probabilities of its K tokens, divided by their sum, and p the trainer's of the same tokens, a
token's forward KL is sum over K of w (log w - log p). It is 0 only if the policy samples these tokens as often, and no
other.

How far the policy has moved from its base model, measured at evaluations, and what that may cost in advantages.
With d = log q - log p_base of the tokens that were sampled and are trained (q as sampled):

    kl/base     mean of exp(-d) - 1 + d          estimates KL(policy || base) (k3: never negative, little variance)
    kl/base_v1  mean of d                        the same, without bias (k1; tinker-cookbook's kl_policy_base)
    A_t += kl_penalty_coef (mean d - d_t)           tinker-cookbook's incorporate_kl_penalty (rl/metrics.py, 0.6.1)

k1 and k3 are those of http://joschu.net/blog/kl-approx.html. The penalty has a mean of 0: it says which tokens are to
come closer to the base model, at the cost of which others.

Axes: _T predictions of one sequence, _K tokens, _N taught tokens of the batch.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Floats, SampleRefusedError
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.lora_weights import Training, taught
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch, trained_tokens
from tinker_atropos.trainer.data.divergence import check_loss
from tinker_atropos.trainer.data.groups import TeacherTopK
from tinker_atropos.trainer.update.loss_clips import clip_metrics
from tinker_atropos.trainer.update.optimizer import dealt_out, gradient_metrics, learning_rate_at


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
    coefficient = config.tinker.kl_penalty_coef
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
    """The differences at each datum's positions: d, NaN where nothing is trained, or the base model's logprob is
    unknown.
    """
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


async def adjusted(training: Training, batch: TrainingBatch, config: TrainerSettings) -> tuple[TrainingBatch, float]:
    """The batch as the loss is to see it, and the seconds that the backend took for that: a loss that pulls all tokens
    back to their logprobs needs a pass. Raises DivergedError.
    """
    if not POLICY_LOSSES[config.loss].pulls_back:
        return batch, 0.0
    begun = time.perf_counter()
    logprobs = await training.forward(batch.datums)
    seconds = time.perf_counter() - begun
    check_loss(0.0, (row[datum.trained_T] for row, datum in zip(logprobs, batch.datums, strict=True)))
    return replace(batch, datums=at_rest(batch.datums, logprobs)), seconds


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
    """The KL of each prediction; 0 where the teacher said nothing."""
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
    batch, forward_seconds = await adjusted(training, compared.batch, config.tinker)
    learning_rate = learning_rate_at(step, config)
    shares = dealt_out(batch.datums, config.tinker.num_substeps)
    output = await training.step(shares, learning_rate)
    metrics = {"train/learning_rate": learning_rate}
    metrics |= gradient_metrics(output.optimizer_metrics, [trained_tokens(share) for share in shares])
    clipped = clip_metrics(batch.datums, output.logprobs, config.tinker)
    learned = teacher_metrics(batch.datums, output.teacher_logprobs)
    return Updated(
        batch=batch,
        logprobs=output.logprobs,
        loss_sum=output.loss_sum,
        sampler=output.sampler,
        metrics=metrics | compared.metrics | clipped | learned,
        seconds=output.seconds | {"base_logprobs": compared.seconds, "forward": forward_seconds},
        first_datums=len(shares[0]),
        warnings=compared.warnings,
    )
