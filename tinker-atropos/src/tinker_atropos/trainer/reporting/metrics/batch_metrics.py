"""What is known of a batch before it is trained: rewards, advantages, staleness, and what was left out. Pure."""

import numpy as np

from rl_contract.rollout_fates import DROP_REASONS
from tinker_atropos.trainer.data.datums import TrainingBatch, lengths, of_trained, policy_steps, sequence_means
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP
from tinker_atropos.trainer.reporting.metrics.rollout_metrics import rollout_metrics
from tinker_atropos.trainer.trajectories.batch_collector import Collected

Metrics = dict[str, float]


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
    truncated_R = np.concatenate([group.truncated_R for group in batch.groups])
    metrics = {f"batch/{reason}": float(count) for reason, count in batch.left_out.items()}
    metrics |= {
        "batch/groups": float(len(batch.groups)),
        "batch/rollouts": float(len(truncated_R)),
        "batch/truncated": float(truncated_R.mean()),
        "batch/trained_rollouts": float(batch.trained_rollouts),
        "batch/trained_sequences": float(len(batch.datums)),
    }
    metrics |= rollout_metrics(batch.groups)
    if batch.datums:
        metrics |= _advantage_metrics(batch) | _distillation_metrics(batch) | _staleness_metrics(batch, policy_step)
    return metrics


def _advantage_metrics(batch: TrainingBatch) -> Metrics:
    """Over sequences, as upstream: the mean over each one's trained tokens, which are mostly equal."""
    advantages_N = of_trained(batch.datums, (datum.advantages_T for datum in batch.datums))
    advantages = sequence_means(advantages_N, lengths(batch.datums))
    return {
        "advantages/mean": float(advantages.mean()),
        "advantages/std": float(advantages.std()),
        "advantages/sum": float(advantages.sum()),
    }


def _distillation_metrics(batch: TrainingBatch) -> Metrics:
    """Trained tokens of which a teacher spoke; of one that scored them, its terms (including the coefficient), and the
    tokens without one.
    """
    named = sum(int(datum.teacher.spoken_T.sum()) for datum in batch.datums if datum.teacher is not None)
    terms = [datum.distilled_T[datum.trained_T] for datum in batch.datums if datum.distilled_T is not None]
    if not terms and not named:
        return {}
    terms_N = np.concatenate([*terms, np.zeros(0)])
    spoken_N = terms_N[~np.isnan(terms_N)]
    tokens = named + len(spoken_N)
    metrics = {"distil/tokens": float(tokens), "distil/token_fraction": tokens / batch.trained_tokens}
    if terms:
        metrics["distil/other_token"] = float(len(terms_N) - len(spoken_N))
    if len(spoken_N):
        metrics |= {"distil/advantage_mean": float(spoken_N.mean()), "distil/advantage_std": float(spoken_N.std())}
    return metrics


def _staleness_metrics(batch: TrainingBatch, policy_step: int) -> Metrics:
    """In policy steps. A token of a later step (an earlier attempt had trained past this step) counts as fresh."""
    steps_N = policy_steps(batch.datums)
    known_N = steps_N[steps_N != UNKNOWN_STEP]
    metrics = {"staleness/unknown": 1.0 - len(known_N) / len(steps_N)}
    if len(known_N):
        staleness_N = np.maximum(policy_step - known_N, 0)
        metrics["staleness/mean"] = float(staleness_N.mean())
        metrics["staleness/max"] = float(staleness_N.max())
    return metrics
