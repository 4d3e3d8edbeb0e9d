"""The policy losses that a run may choose (`trainer.loss`): one row each, with what the backend has to be told.

With p the trainer's probability of a token, q the sampler's, A its advantage and r = p / q.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

LossName = Literal["importance_sampling", "ppo", "cispo", "gspo", "dro"]


@dataclass(frozen=True, slots=True)
class ClipThresholds:
    """The lowest and the highest probability ratio that a loss uses."""

    low: float
    high: float

    def as_loss_config(self) -> dict[str, float]:
        """Under Tinker's names."""
        return {"clip_low_threshold": self.low, "clip_high_threshold": self.high}


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`formula` is per token. `clips` are its thresholds unless others are given; None: it has none.

    `marks_sequence`: it needs to know which tokens its ratio of a whole sequence is over (Tinker's
    `sequence_ratio_mask`). `pulls_back`: it has a beta (`trainer.dro_beta`), and pulls p back to q everywhere, also
    where nothing is trained. `clip_stops_gradient`: a ratio past the threshold that A pushes it to has none.
    `everywhere`: every backend has it, so that none has to be asked.
    """

    formula: str
    source: str
    clips: ClipThresholds | None = None
    marks_sequence: bool = False
    pulls_back: bool = False
    clip_stops_gradient: bool = False
    everywhere: bool = False


POLICY_LOSSES: Final[Mapping[LossName, PolicyLoss]] = {
    "importance_sampling": PolicyLoss("-r A", "Tinker", everywhere=True),
    "ppo": PolicyLoss(
        "-min(r A, clip(r) A)",
        "arXiv:1707.06347",
        clips=ClipThresholds(0.8, 1.2),
        clip_stops_gradient=True,
        everywhere=True,
    ),
    "cispo": PolicyLoss(
        "-stop_gradient(clip(r)) A log p", "arXiv:2506.13585 (MiniMax-M1)", clips=ClipThresholds(0.0, 4.0)
    ),
    "gspo": PolicyLoss(
        "-min(s A, clip(s) A), s the geometric mean of r over the sequence's sampled tokens",
        "arXiv:2507.18071 (GSPO-token)",
        clips=ClipThresholds(1 - 3e-4, 1 + 4e-4),
        marks_sequence=True,
        clip_stops_gradient=True,
    ),
    "dro": PolicyLoss("beta / 2 (log r)^2 - A log p", "arXiv:2405.19107", pulls_back=True),
}
"""Thresholds are Tinker's own defaults (tinker-cookbook's tutorials/202_loss_functions.py), gspo's are the paper's
(section 5.1). cispo has no lower bound, and 4 to 8 are equally good above (ScaleRL, arXiv:2510.13786).
"""
