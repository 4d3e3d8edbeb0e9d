"""What a step's forward pass says of the policy. Pure. Names are tinker-atropos'; ours follow them (`metric_table`).

`logprobs/*` are of the distribution sampled from, `logprobs/*_training` of the trainer's own forward pass over the same
tokens. The gap between the two is measured on staleness-0 tokens, where both come from the same weights, and, with
the suffix `_stale`, on the others. Axis: _N all trained tokens of the batch.
"""

from collections.abc import Sequence

import numpy as np

from tinker_atropos.arrays import Floats
from tinker_atropos.trainer.data.datums import TrainingBatch, lengths, of_trained, policy_steps
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP
from tinker_atropos.trainer.update.ess_steering import effective_sample_size

Metrics = dict[str, float]


def training_metrics(
    batch: TrainingBatch,
    training_logprobs: Sequence[Floats],
    loss_sum: float,
    policy_step: int,
    first_datums: int | None = None,
) -> Metrics:
    """What forward_backward returned: the loss per token, and how far apart sampler and trainer are.

    `first_datums` are of the step's first optimizer step (None: all); the others count as stale: it has moved the
    weights that their logprobs are of.
    """
    datums = batch.datums
    sampling_N = of_trained(datums, (datum.logprobs_T for datum in datums))
    training_N = of_trained(datums, training_logprobs)
    steps_N = policy_steps(datums)
    metrics = {"train/loss": loss_sum / len(sampling_N)}
    metrics |= _distribution("", sampling_N) | _distribution("_training", training_N)
    fresh_N = steps_N == policy_step
    fresh_N[int(lengths(datums[:first_datums]).sum()) :] = False
    stale_N = (steps_N != UNKNOWN_STEP) & ~fresh_N
    metrics |= gap_metrics("", sampling_N[fresh_N], training_N[fresh_N])
    metrics |= gap_metrics("_stale", sampling_N[stale_N], training_N[stale_N])
    return metrics


def gap_metrics(suffix: str, sampling_N: Floats, training_N: Floats) -> Metrics:
    """How far apart sampler q and trainer p are, with d = log q - log p of tokens drawn from q. Empty without tokens.

    kl_v1 = mean d and kl_v2 = mean d^2 / 2 estimate KL(q || p): the first without bias, the second with less variance
    (http://joschu.net/blog/kl-approx.html: k1 and k2; tinker-cookbook's optim/kl_sample_train_v1 and _v2). The
    effective sample size of the weights w = p/q is (sum w)^2 / (n sum w^2) (Kong 1992), a fraction: 1 on policy.
    """
    if not len(sampling_N):
        return {}
    difference_N = sampling_N - training_N
    return {
        f"logprobs/diff{suffix}": float(difference_N.mean()),
        f"logprobs/gap{suffix}": float(np.abs(difference_N).max()),
        f"logprobs/kl_v1{suffix}": float(difference_N.mean()),
        f"logprobs/kl_v2{suffix}": float((difference_N**2).mean() / 2),
        f"logprobs/ess{suffix}": effective_sample_size(-difference_N),
    }


def _distribution(suffix: str, logprobs_N: Floats) -> Metrics:
    return {
        f"logprobs/mean{suffix}": float(logprobs_N.mean()),
        f"logprobs/std{suffix}": float(logprobs_N.std()),
        f"logprobs/min{suffix}": float(logprobs_N.min()),
        f"logprobs/p50{suffix}": float(np.median(logprobs_N)),
    }
