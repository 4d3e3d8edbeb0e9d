"""Sentences about a step's metrics that a person should know of. Pure."""

from collections.abc import Mapping
from typing import Final

RECOMPUTED_SHARE: Final = 0.1


def kl_warning(metrics: Mapping[str, float], limit: float) -> str | None:
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
