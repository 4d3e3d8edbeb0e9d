"""Where the losses that clip do so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ClipThresholds:
    """The lowest and the highest probability ratio r = p / q that a loss uses."""

    low: float
    high: float

    def as_loss_config(self) -> dict[str, float]:
        """Under Tinker's names."""
        return {"clip_low_threshold": self.low, "clip_high_threshold": self.high}


CLIP_THRESHOLDS: Final[Mapping[str, ClipThresholds]] = {
    "ppo": ClipThresholds(0.8, 1.2),
    "cispo": ClipThresholds(0.0, 4.0),
}
"""What the losses that clip use unless thresholds are given: Tinker's own defaults (tinker-cookbook's
tutorials/202_loss_functions.py). ppo's are those of Schulman et al. 2017 (arXiv:1707.06347); cispo has no lower bound
(MiniMax-M1, arXiv:2506.13585), and 4 to 8 are equally good above (ScaleRL, arXiv:2510.13786).
"""
