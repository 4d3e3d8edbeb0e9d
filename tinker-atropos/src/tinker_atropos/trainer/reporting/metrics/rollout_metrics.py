"""What the rollouts of a batch are like: their rewards, and the parts of those, how long they are, how sure the policy
was. Pure.

All rollouts count that came with the batch, trained or not. Axes: _R rollouts, _N their generated tokens.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Final

import numpy as np

from tinker_atropos.arrays import Floats
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, Shaping, TokenSequence

FULL_REWARD: Final = 1.0
"""A rollout with at least so much is right, as an environment counts it that says nothing else
(`environments.base.Environment.is_correct`).
"""

MOST_COMPONENTS: Final = 16
LONGEST_NAME: Final = 48
"""Of a reward's component: environments name them, and each is a metric of its own."""


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    scores_R = np.concatenate([group.scores_R for group in groups])
    tokens_R = np.concatenate([group.sampled_tokens_R for group in groups])
    return (
        reward_metrics(scores_R)
        | length_metrics(tokens_R, scores_R)
        | entropy_metrics(groups)
        | component_metrics(groups)
    )


def reward_metrics(scores_R: Floats) -> dict[str, float]:
    return {
        "reward/mean": float(scores_R.mean()),
        "reward/std": float(scores_R.std()),
        "reward/min": float(scores_R.min()),
        "reward/max": float(scores_R.max()),
    }


def length_metrics(tokens_R: Floats, scores_R: Floats) -> dict[str, float]:
    """Tokens that were generated for each rollout, in all of its turns."""
    metrics = {"length/mean": float(tokens_R.mean()), "length/p95": float(np.percentile(tokens_R, 95))}
    right_R = scores_R >= FULL_REWARD
    for name, chosen_R in (("right", right_R), ("wrong", ~right_R)):
        if chosen_R.any():
            metrics[f"length/{name}"] = float(tokens_R[chosen_R].mean())
    return metrics


def entropy_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """-mean log q of tokens that were drawn from q itself: at temperature 1, without top_p and top_k.

    Of a distribution of which only the drawn token's probability is known, this is the one unbiased estimate of the
    entropy, averaged over the contexts that the rollouts passed through. q is of the weights that sampled them: their
    age is `staleness/mean`.
    """
    drawn = [
        sequence.logprobs_T[_drawn(sequence)]
        for group in groups
        if _is_plain(group.shaping)
        for sequence in group.sequences_S
    ]
    logprobs_N = np.concatenate(drawn) if drawn else np.empty(0)
    return {"train/entropy": 0.0 - float(logprobs_N.mean())} if len(logprobs_N) else {}


def _is_plain(shaping: Shaping | None) -> bool:
    return shaping is not None and shaping.temperature == 1.0 and shaping.top_p >= 1.0 and shaping.top_k < 1


def _drawn(sequence: TokenSequence) -> Any:
    """Tokens whose logprob is the sampler's own, [T]."""
    known_T = sequence.generated_T & (sequence.policy_step_T != UNKNOWN_STEP)
    return known_T if sequence.recomputed_T is None else known_T & ~sequence.recomputed_T


def component_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """The mean of each component over the rollouts that have it, of the first MOST_COMPONENTS names in order."""
    values: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for name, value in _components(group):
            values[name].append(value)
    return {f"reward/component/{name}": float(np.mean(values[name])) for name in sorted(values)[:MOST_COMPONENTS]}


def _components(group: Group) -> Iterator[tuple[str, float]]:
    """What others sent: it may be anything."""
    rows = group.story.components_R
    for row in rows if isinstance(rows, list) else ():
        for name, value in row.items() if isinstance(row, Mapping) else ():
            if isinstance(value, Real) and math.isfinite(value):
                yield re.sub(r"[^\w.-]", "_", str(name))[:LONGEST_NAME], float(value)
