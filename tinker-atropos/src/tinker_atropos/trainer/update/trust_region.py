"""The limits on how far the policy may move a token: `trainer.trust_region`, and the loss's own clipping. Pure.

By the trust region, tokens that the policy has moved too far are not trained.

With p the trainer's probability of a token now, q the sampler's when it was sampled, and A its advantage, a token is
masked (A becomes 0) if

    dppo    A > 0 and p - q > 0.2, or A < 0 and q - p > 0.2      (DPPO, arXiv:2602.04879: the binary TV mask)
    icepop  p / q is not in [0.5, 5]                             (IcePop, in Ring-1T, arXiv:2510.18855)

dppo's tokens have already moved as far as their advantage asks for; those that moved the other way are still pulled
back.

Which trained tokens the loss itself clips is told here, too.

Axes: _T predictions of one sequence, _N all trained tokens of a batch, sequence by sequence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch, lengths, log_ratios, of_trained, sequence_means

TrustRegion = Literal["dppo", "icepop"]
Outside = Callable[[Floats, Floats, Floats], Bools]
"""Of log p, log q and A of each token: whether it is outside."""

DPPO_SHIFT: Final = 0.2
ICEPOP_RATIOS: Final = (0.5, 5.0)


def outside_dppo(trainer_T: Floats, sampler_T: Floats, advantages_T: Floats) -> Bools:
    moved_T = np.exp(trainer_T) - np.exp(sampler_T)
    outside_T: Bools = np.sign(advantages_T) * moved_T > DPPO_SHIFT
    return outside_T


def outside_icepop(trainer_T: Floats, sampler_T: Floats, _advantages_T: Floats) -> Bools:
    low, high = np.log(ICEPOP_RATIOS)
    log_ratio_T = trainer_T - sampler_T
    outside_T: Bools = (log_ratio_T < low) | (log_ratio_T > high)
    return outside_T


TRUST_REGIONS: Final[Mapping[TrustRegion, Outside]] = {"dppo": outside_dppo, "icepop": outside_icepop}


def mask_metrics(batch: TrainingBatch) -> dict[str, float]:
    """Empty if nothing had to be looked at."""
    if all(datum.masked_T is None for datum in batch.datums):
        return {}
    masked = batch.masked_tokens
    return {"batch/masked_tokens": float(masked), "batch/masked_fraction": masked / batch.trained_tokens}


def within(datums: Sequence[Datum], logprobs: Sequence[Floats], region: TrustRegion) -> list[Datum]:
    """The datums without the advantages of tokens outside of the region. `logprobs` are the trainer's, for each."""
    return [_masked(datum, row, TRUST_REGIONS[region]) for datum, row in zip(datums, logprobs, strict=True)]


def _masked(datum: Datum, trainer_T: Floats, outside: Outside) -> Datum:
    """What has no advantage is not masked: it would not be trained anyway."""
    matters_T = datum.trained_T & (datum.advantages_T != 0)
    found_T = np.where(matters_T, trainer_T, 0.0), np.where(matters_T, datum.logprobs_T, 0.0)
    masked_T = matters_T & outside(*found_T, datum.advantages_T)
    return replace(datum, masked_T=masked_T, advantages_T=np.where(masked_T, 0.0, datum.advantages_T))


def clip_metrics(datums: Sequence[Datum], logprobs: Sequence[Floats], config: TrainerSettings) -> dict[str, float]:
    """`logprobs` are the trainer's, for each datum. Empty for a loss without thresholds.

    Where clipping takes the gradient away, the share of tokens that lost it; elsewhere (cispo) of those whose weight is
    the threshold instead of their ratio.
    """
    thresholds = config.clip_thresholds
    if thresholds is None or not datums:
        return {}
    found_N = clipped_tokens(datums, logprobs, config)
    if not POLICY_LOSSES[config.loss].clip_stops_gradient:
        log_ratio_N = log_ratios(datums, logprobs)
        with np.errstate(divide="ignore"):  # a threshold of 0 is below every ratio
            found_N = (log_ratio_N > np.log(thresholds.high)) | (log_ratio_N < np.log(thresholds.low))
    return {"batch/clipped_fraction": float(found_N.mean())}


def clipped_tokens(datums: Sequence[Datum], logprobs: Sequence[Floats], config: TrainerSettings) -> Bools:
    """Where min(r A, clip(r) A), the objective of ppo and gspo, has no gradient: r is past the threshold that A pushes
    it to (Schulman et al. 2017, arXiv:1707.06347, equation 7), [N]. The other losses have one everywhere.

    gspo's r is the sequence's, the geometric mean of those of its tokens.
    """
    thresholds, row = config.clip_thresholds, POLICY_LOSSES[config.loss]
    log_ratio_N = log_ratios(datums, logprobs)
    if thresholds is None or not row.clip_stops_gradient:
        return np.zeros(len(log_ratio_N), np.bool_)
    if row.marks_sequence:
        lengths_S = lengths(datums)
        log_ratio_N = np.repeat(sequence_means(log_ratio_N, lengths_S), lengths_S)
    advantages_N = of_trained(datums, (datum.advantages_T for datum in datums))
    up_N = (advantages_N > 0) & (log_ratio_N > np.log(thresholds.high))
    with np.errstate(divide="ignore"):
        down_N = (advantages_N < 0) & (log_ratio_N < np.log(thresholds.low))
    found_N: Bools = up_N | down_N
    return found_N
