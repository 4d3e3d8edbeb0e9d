"""Advantages of the rollouts of one group. Pure numpy.

Axis: _G rollouts of one group.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tinker_atropos.trainer.rollouts import Floats


def group_centred(scores_G: Floats) -> Floats:
    """Score minus the group's mean: the GRPO baseline without the division by the deviation (Dr. GRPO)."""
    centred_G: Floats = scores_G - scores_G.mean()
    return centred_G


ADVANTAGES: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType({"group_centred": group_centred})
"""The strategies that `tinker.advantage` may name."""
