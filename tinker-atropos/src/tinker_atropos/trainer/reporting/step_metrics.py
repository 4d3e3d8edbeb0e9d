"""Metrics of one step, and where its time went. Pure. Names are tinker-atropos'; ours follow them (`metric_table`).

`logprobs/*` are of the distribution sampled from, `logprobs/*_training` of the trainer's own forward pass over the same
tokens. The gap between the two is measured on staleness-0 tokens, where both come from the same weights, and, with
the suffix `_stale`, on the others. Axis: _N all trained tokens of the batch.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tinker_atropos.arrays import Floats, Ints
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP
from tinker_atropos.trainer.trajectories.admission import DROP_REASONS
from tinker_atropos.trainer.trajectories.batch_collector import Collected

Metrics = dict[str, float]

RECOMPUTED_SHARE = 0.1


def collection_metrics(collected: Collected, batch: TrainingBatch) -> Metrics:
    """What it took to get this batch, and how much of what arrived for it is trained."""
    received = collected.dropped_tokens + sum(
        int(np.count_nonzero(sequence.generated_T)) for group in collected.groups for sequence in group.sequences_S
    )
    metrics = {f"batch/dropped_{reason}": float(collected.dropped.get(reason, 0)) for reason in DROP_REASONS}
    return metrics | {
        "batch/received_tokens": float(received),
        "batch/trained_tokens": float(batch.trained_tokens),
        "batch/trained_fraction": batch.trained_tokens / received if received else 0.0,
        "batch/recomputed_logprobs": float(collected.recomputed),
        "batch/unknown_overrides": float(collected.unknown_overrides),
    }


def batch_metrics(batch: TrainingBatch, policy_step: int) -> Metrics:
    """What is known before the optimizer step: rewards, advantages, staleness in policy steps, what was left out."""
    scores = np.concatenate([group.scores_R for group in batch.groups])
    metrics = {"reward/mean": float(scores.mean()), "reward/std": float(scores.std())}
    metrics |= {"reward/min": float(scores.min()), "reward/max": float(scores.max())}
    metrics |= {f"batch/{reason}": float(count) for reason, count in batch.left_out.items()}
    metrics |= {
        "batch/groups": float(len(batch.groups)),
        "batch/rollouts": float(len(scores)),
        "batch/trained_rollouts": float(batch.trained_rollouts),
        "batch/trained_sequences": float(len(batch.datums)),
    }
    if batch.datums:
        metrics |= _advantage_metrics(batch) | _distillation_metrics(batch) | _staleness_metrics(batch, policy_step)
    return metrics


def training_metrics(
    batch: TrainingBatch, training_logprobs: Sequence[Floats], loss_sum: float, policy_step: int
) -> Metrics:
    """What forward_backward returned: the loss per token, and how far apart sampler and trainer are."""
    trained = np.concatenate([datum.trained_T for datum in batch.datums])
    sampling_N = np.concatenate([datum.logprobs_T for datum in batch.datums])[trained]
    training_N = np.concatenate(training_logprobs)[trained]
    steps_N = _policy_steps(batch)
    metrics = {"train/loss": loss_sum / len(sampling_N)}
    metrics |= _distribution("", sampling_N) | _distribution("_training", training_N)
    fresh_N, known_N = steps_N == policy_step, steps_N != UNKNOWN_STEP
    metrics |= gap_metrics("", sampling_N[fresh_N], training_N[fresh_N])
    metrics |= gap_metrics("_stale", sampling_N[known_N & ~fresh_N], training_N[known_N & ~fresh_N])
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
    weights_N = np.exp(-difference_N + difference_N.min())  # scaled to at most 1: the ratio below stays the same
    return {
        f"logprobs/diff{suffix}": float(difference_N.mean()),
        f"logprobs/gap{suffix}": float(np.abs(difference_N).max()),
        f"logprobs/kl_v1{suffix}": float(difference_N.mean()),
        f"logprobs/kl_v2{suffix}": float((difference_N**2).mean() / 2),
        f"logprobs/ess{suffix}": float(weights_N.sum() ** 2 / (len(weights_N) * (weights_N**2).sum())),
    }


def kl_warning(metrics: Metrics, limit: float) -> str | None:
    """A sentence if sampler and trainer disagree about tokens of the same weights, else None."""
    kl = metrics.get("logprobs/kl_v2", 0.0)
    if kl <= limit:
        return None
    return (
        f"sampler and trainer are {kl:.2g} nats apart per token (logprobs/kl_v2) on tokens of the same weights, more "
        f"than tinker.kl_warning ({limit:g}): the backend computes the two differently, or the environment samples "
        f"with temperature, top_p or top_k"
    )


def recomputed_warning(recomputed: float, sequences: int) -> str | None:
    """A sentence if more than RECOMPUTED_SHARE of a batch's sequences have recomputed logprobs, else None.

    It names no figure: it would change with each batch.
    """
    if not sequences or recomputed / sequences <= RECOMPUTED_SHARE:
        return None
    return (
        f"more than {RECOMPUTED_SHARE:.0%} of the batch (batch/recomputed_logprobs) is not what was sampled here: its "
        f"token ids match no generation, so its logprobs are recomputed by the current policy, and neither "
        f"tinker.max_staleness nor a clip has an effect; let the environment return the sampled token ids"
    )


def _advantage_metrics(batch: TrainingBatch) -> Metrics:
    """Over sequences, as upstream: the mean over each one's trained tokens, which are mostly equal."""
    advantages = np.array([datum.advantages_T.sum() / np.count_nonzero(datum.trained_T) for datum in batch.datums])
    return {
        "advantages/mean": float(advantages.mean()),
        "advantages/std": float(advantages.std()),
        "advantages/sum": float(advantages.sum()),
    }


def _distillation_metrics(batch: TrainingBatch) -> Metrics:
    """The teacher's terms (including the coefficient) on trained tokens, and the tokens without one."""
    terms = [datum.distilled_T[datum.trained_T] for datum in batch.datums if datum.distilled_T is not None]
    if not terms:
        return {}
    terms_N = np.concatenate(terms)
    spoken_N = terms_N[~np.isnan(terms_N)]
    metrics = {"distil/tokens": float(len(spoken_N)), "distil/other_token": float(len(terms_N) - len(spoken_N))}
    if len(spoken_N):
        metrics |= {"distil/advantage_mean": float(spoken_N.mean()), "distil/advantage_std": float(spoken_N.std())}
    return metrics


def _staleness_metrics(batch: TrainingBatch, policy_step: int) -> Metrics:
    """In policy steps. A token of a later step (an earlier attempt had trained past this step) counts as fresh."""
    steps_N = _policy_steps(batch)
    known_N = steps_N[steps_N != UNKNOWN_STEP]
    metrics = {"staleness/unknown": 1.0 - len(known_N) / len(steps_N)}
    if len(known_N):
        staleness_N = np.maximum(policy_step - known_N, 0)
        metrics["staleness/mean"] = float(staleness_N.mean())
        metrics["staleness/max"] = float(staleness_N.max())
    return metrics


def _policy_steps(batch: TrainingBatch) -> Ints:
    """Policy steps of the trained tokens, [N]."""
    trained = np.concatenate([datum.trained_T for datum in batch.datums])
    steps_N: Ints = np.concatenate([datum.policy_step_T for datum in batch.datums])[trained]
    return steps_N


def _distribution(suffix: str, logprobs_N: Floats) -> Metrics:
    return {
        f"logprobs/mean{suffix}": float(logprobs_N.mean()),
        f"logprobs/std{suffix}": float(logprobs_N.std()),
        f"logprobs/min{suffix}": float(logprobs_N.min()),
        f"logprobs/p50{suffix}": float(np.median(logprobs_N)),
    }


OWN_PARTS = ("preparing", "reporting")
"""What a step waits for in this process. The other parts are spent on rollouts and on the backend."""

PARTS = ("waiting", "forward_backward", "optim_step", "snapshot", "saving", *OWN_PARTS)


class Stopwatch:
    """Splits time without gaps: the time since the last call goes to the parts that are named now.

    So the parts of a lap add up to it. A step's own reporting and saving come after its metrics: they count in the next
    step's lap.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_lap = self._named_until = clock()
        self._parts: dict[str, float] = defaultdict(float)

    def spent(self, part: str, within: Mapping[str, float] | None = None) -> None:
        """The time since the last call was `part`, except for the parts `within` it, whose seconds are known."""
        now = self._clock()
        known = dict(within or {})
        self._parts[part] += now - self._named_until - sum(known.values())
        for name, seconds in known.items():
            self._parts[name] += seconds
        self._named_until = now

    def lap(self) -> dict[str, float]:
        """`time/<part>` of every part since the last lap, their sum `time/step`, and `time/own_share` of it; begins the
        next lap.
        """
        self.spent("preparing")
        metrics = {f"time/{part}": self._parts[part] for part in PARTS}
        metrics["time/step"] = step = self._named_until - self._began_lap
        metrics["time/own_share"] = sum(self._parts[part] for part in OWN_PARTS) / step if step else 0.0
        self._parts.clear()
        self._began_lap = self._named_until
        return metrics
