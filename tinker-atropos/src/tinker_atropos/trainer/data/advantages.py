"""Advantages of the rollouts of one group. Pure numpy.

Axis: _R rollouts of one group.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tinker_atropos.arrays import Floats

Strategy = Callable[[Floats], Floats]


def group_centered(scores_R: Floats) -> Floats:
    """Score minus the group's mean: GRPO without the division by the deviation (Dr. GRPO, arXiv:2503.20783)."""
    centered_R: Floats = scores_R - scores_R.mean()
    return centered_R


def leave_one_out(scores_R: Floats) -> Floats:
    """Score minus the mean of the group's *other* rollouts (RLOO, arXiv:2402.14740)."""
    others_R: Floats = (scores_R.sum() - scores_R) / (len(scores_R) - 1)
    return scores_R - others_R


def group_normalized(scores_R: Floats) -> Floats:
    """Score minus mean, over the group's (population) standard deviation (GRPO, arXiv:2402.03300)."""
    normalized_R: Floats = group_centered(scores_R) / scores_R.std()
    return normalized_R


ADVANTAGES: Mapping[str, Strategy] = MappingProxyType(
    {"group_centered": group_centered, "leave_one_out": leave_one_out, "group_normalized": group_normalized}
)
"""The strategies that `tinker.advantage` may name."""


def advantages(scores_R: Floats, strategy: Strategy) -> Floats:
    """Equal scores, and a group of one, have an advantage of exactly 0: rounding in a mean must not create one."""
    if (scores_R == scores_R[0]).all():
        return np.zeros_like(scores_R)
    return strategy(scores_R)
