"""Every loss against its formula, worked out by hand in numpy; gradients against finite differences."""

import numpy as np
import pytest
import torch

from tinker_atropos.tinker_service.losses import LOSSES

P = np.log([0.5, 0.9, 0.1, 0.4])  # the trainer's logprobs
Q = np.log([0.5, 0.3, 0.4, 0.4])  # the sampler's: ratios 1, 3, 0.25, 1
A = np.array([1.0, 2.0, -1.0, 0.0])
WIDE = {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("cross_entropy", {}, -P * A),
        ("importance_sampling", {}, [-1.0, -6.0, 0.25, 0.0]),
        # A > 0 above the upper bound is clipped; A < 0 below the lower bound too (the pessimistic side).
        ("ppo", {}, [-1.0, -2.4, 0.8, 0.0]),
        ("ppo", WIDE, [-1.0, -4.0, 0.5, 0.0]),
        ("cispo", {}, [-1.0 * P[0], -1.2 * 2 * P[1], 0.8 * P[2], 0.0]),
        ("cispo", WIDE, [-1.0 * P[0], -2.0 * 2 * P[1], 0.5 * P[2], 0.0]),
    ],
)
def test_loss_equals_its_formula(name: str, config: dict[str, float], expected: list[float]) -> None:
    loss = LOSSES[name]
    inputs = {"logprobs": torch.tensor(Q), "advantages": torch.tensor(A), "weights": torch.tensor(A)}
    losses = loss.function(torch.tensor(P), inputs, {**loss.config, **config})
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("importance_sampling", [-1.0, -6.0, 0.25, 0.0]),  # d(-r A)/d log p = -r A
        ("ppo", [-1.0, 0.0, 0.0, 0.0]),  # nothing flows through a clipped ratio
        ("cispo", [-1.0, -2.4, 0.8, 0.0]),  # the clipped ratio is a constant weight: every token learns
    ],
)
def test_gradient_by_log_p(name: str, expected: list[float]) -> None:
    loss = LOSSES[name]
    logprobs = torch.tensor(P, requires_grad=True)
    inputs = {"logprobs": torch.tensor(Q), "advantages": torch.tensor(A)}
    (gradient,) = torch.autograd.grad(loss.function(logprobs, inputs, loss.config).sum(), logprobs)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12, atol=1e-12)
