"""AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), the update of torch.optim.AdamW, over a list of tensors.

Reimplemented because torch.optim pulls in the compiler: a second of startup and 100 MB that this service never uses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class AdamSettings:
    """`grad_clip_norm` 0: no clipping."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(slots=True)
class AdamState:
    """First and second moments, one of each per parameter, and the number of steps taken."""

    first: list[torch.Tensor]
    second: list[torch.Tensor]
    step: int = 0

    @classmethod
    def zeros(cls, parameters: Sequence[torch.Tensor]) -> "AdamState":
        return cls([torch.zeros_like(p) for p in parameters], [torch.zeros_like(p) for p in parameters])


@torch.no_grad()
def adamw_step(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    state: AdamState,
    settings: AdamSettings,
) -> float:
    """Update parameters and state in place; returns the gradient's global norm before clipping.

    A gradient that is not finite changes nothing: one such step would make every weight and both moments NaN forever.
    """
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))
    if not math.isfinite(norm):
        return norm
    limit = settings.grad_clip_norm
    scale = limit / norm if 0 < limit < norm else 1.0
    state.step += 1
    correction1 = 1 - settings.beta1**state.step
    correction2 = 1 - settings.beta2**state.step
    for parameter, gradient, first, second in zip(parameters, gradients, state.first, state.second, strict=True):
        clipped = gradient * scale
        first.lerp_(clipped, 1 - settings.beta1)
        second.mul_(settings.beta2).addcmul_(clipped, clipped, value=1 - settings.beta2)
        parameter.mul_(1 - settings.learning_rate * settings.weight_decay)
        denominator = (second / correction2).sqrt_().add_(settings.eps)
        parameter.addcdiv_(first, denominator, value=-settings.learning_rate / correction1)
    return norm
