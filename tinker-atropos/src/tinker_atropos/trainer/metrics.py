"""Metrics of one step. Pure. Names are tinker-atropos'; ours stand beside them in the same style.

`logprobs/*` are of the distribution sampled from, `logprobs/*_training` of the trainer's own forward pass over the same
tokens. Their difference is judged on staleness-0 tokens only, where both come from the same weights.
"""

from collections.abc import Sequence

import numpy as np

from tinker_atropos.trainer.datums import Batch
from tinker_atropos.trainer.ledger import UNKNOWN_STEP
from tinker_atropos.trainer.rollouts import Floats, Group, Ints

Metrics = dict[str, float]


def batch_metrics(groups: Sequence[Group], batch: Batch, policy_step: int) -> Metrics:
    """What is known before the optimizer step: rewards, advantages, staleness in policy steps, what was left out."""
    scores = np.concatenate([group.scores_G for group in groups])
    metrics = {"reward/mean": float(scores.mean()), "reward/std": float(scores.std())}
    metrics |= {f"batch/{reason}": float(count) for reason, count in batch.left_out.items()}
    metrics |= {"batch/rollouts": float(len(scores)), "batch/trained_rollouts": float(len(batch.datums))}
    if not batch.datums:
        return metrics
    advantages = np.array([datum.advantages_T[datum.trained_T][0] for datum in batch.datums])
    metrics |= {
        "advantages/mean": float(advantages.mean()),
        "advantages/std": float(advantages.std()),
        "advantages/sum": float(advantages.sum()),
        "train/tokens": float(batch.trained_tokens),
    }
    steps = _policy_steps(batch)
    known = steps[steps != UNKNOWN_STEP]
    metrics["staleness/unknown"] = 1.0 - len(known) / len(steps)
    if len(known):
        metrics["staleness/mean"] = float(policy_step - known.mean())
        metrics["staleness/max"] = float(policy_step - known.min())
    return metrics


def training_metrics(batch: Batch, training_logprobs: Sequence[Floats], loss_sum: float, policy_step: int) -> Metrics:
    """What forward_backward told: the loss per token, and how far sampler and trainer are apart.

    kl is the k3 estimator of KL(sampler || trainer) (http://joschu.net/blog/kl-approx.html): mean of exp(-d) - 1 + d
    with d = sampler - trainer.
    """
    sampling = np.concatenate([datum.logprobs_T[datum.trained_T] for datum in batch.datums])
    training = np.concatenate(
        [row[datum.trained_T] for row, datum in zip(training_logprobs, batch.datums, strict=True)]
    )
    metrics = {"train/loss": loss_sum / len(sampling)}
    metrics |= _distribution("", sampling) | _distribution("_training", training)
    fresh = _policy_steps(batch) == policy_step
    if fresh.any():
        difference = (sampling - training)[fresh]
        metrics["logprobs/diff"] = float(difference.mean())
        metrics["logprobs/gap"] = float(np.abs(difference).max())
        metrics["logprobs/kl"] = float((np.exp(-difference) - 1 + difference).mean())
    return metrics


def _policy_steps(batch: Batch) -> Ints:
    return np.concatenate([datum.policy_step_T[datum.trained_T] for datum in batch.datums])


def _distribution(suffix: str, logprobs: Floats) -> Metrics:
    return {
        f"logprobs/mean{suffix}": float(logprobs.mean()),
        f"logprobs/std{suffix}": float(logprobs.std()),
        f"logprobs/min{suffix}": float(logprobs.min()),
        f"logprobs/p50{suffix}": float(np.median(logprobs)),
    }
