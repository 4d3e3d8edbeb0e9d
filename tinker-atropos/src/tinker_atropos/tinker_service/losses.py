"""Tinker's losses, per token; a request's loss is their SUM over all tokens of all sequences.

With p the trainer's probability of a target token, q the sampler's, A its advantage and r = p / q:

    cross_entropy        -w log p
    importance_sampling  -r A
    ppo                  -min(r A, clip(r) A)             (Schulman et al. 2017, arXiv:1707.06347)
    cispo                -stop_gradient(clip(r)) A log p  (MiniMax-M1, arXiv:2506.13585)

Formulas and default thresholds as in Tinker's documentation of its loss functions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

CLIP_THRESHOLDS: Mapping[str, float] = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}

Inputs = Mapping[str, torch.Tensor]
LossFunction = Callable[[torch.Tensor, Inputs, Mapping[str, float]], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss: its function of (log p, inputs, config), the inputs beside `target_tokens`, and its config's defaults.

    `optional` inputs default to ones.
    """

    function: LossFunction
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    config: Mapping[str, float] = field(default_factory=dict)


def _cross_entropy(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    return -logprobs * inputs["weights"]


def _importance_sampling(logprobs: torch.Tensor, inputs: Inputs, _config: Mapping[str, float]) -> torch.Tensor:
    return -_ratio(logprobs, inputs) * inputs["advantages"]


def _ppo(logprobs: torch.Tensor, inputs: Inputs, config: Mapping[str, float]) -> torch.Tensor:
    ratio, advantages = _ratio(logprobs, inputs), inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, config) * advantages)


def _cispo(logprobs: torch.Tensor, inputs: Inputs, config: Mapping[str, float]) -> torch.Tensor:
    return -_clip(_ratio(logprobs, inputs), config).detach() * inputs["advantages"] * logprobs


def _ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return torch.exp(logprobs - inputs["logprobs"])


def _clip(ratio: torch.Tensor, config: Mapping[str, float]) -> torch.Tensor:
    return ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])


_POLICY_INPUTS = ("logprobs", "advantages")

LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, optional=("weights",)),
    "importance_sampling": Loss(_importance_sampling, required=_POLICY_INPUTS),
    "ppo": Loss(_ppo, required=_POLICY_INPUTS, config=CLIP_THRESHOLDS),
    "cispo": Loss(_cispo, required=_POLICY_INPUTS, config=CLIP_THRESHOLDS),
}
