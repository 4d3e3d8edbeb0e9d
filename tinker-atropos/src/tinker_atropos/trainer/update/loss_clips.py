"""Which trained tokens the loss itself clips. Pure.

Axes: _N all trained tokens of a batch, sequence by sequence; _S sequences.
"""

from collections.abc import Sequence

import numpy as np

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.trainer.data.datums import Datum, lengths, log_ratios, of_trained, sequence_means


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
