"""Every loss against its formula, worked out by hand in numpy; gradients against finite differences."""

import numpy as np
import pytest
import torch

from rl_contract.policy_losses import POLICY_LOSSES, LossName
from tinker_service.model.losses import LOSSES, Loss

P = np.log([0.5, 0.9, 0.1, 0.4])  # the trainer's logprobs
Q = np.log([0.5, 0.3, 0.4, 0.4])  # the sampler's: ratios 1, 3, 0.25, 1
A = np.array([1.0, 2.0, -1.0, 0.0])
MASK = np.array([1.0, 1.0, 0.0, 1.0])  # of gspo: the sequence ratio is (1 x 3 x 1) ** (1 / 3)
S = 3 ** (1 / 3)
SAMPLED = np.array([1.0, 1.0, 1.0, 0.0])
LOG_R = (P - Q) * SAMPLED
WIDE = {"clip_low_threshold": 0.5, "clip_high_threshold": 2.0}


def loss_inputs(loss: Loss, config: dict[str, float] | None = None) -> dict[str, torch.Tensor]:
    thresholds = {name: torch.full((4,), value) for name, value in {**loss.config, **(config or {})}.items()}
    rest = {"logprobs": Q, "advantages": A, "weights": A, "sequence_ratio_mask": MASK, "sampled": SAMPLED}
    return {**{name: torch.tensor(values) for name, values in rest.items()}, **thresholds}


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("cross_entropy", {}, -P * A),
        ("importance_sampling", {}, [-1.0, -6.0, 0.25, 0.0]),
        # A > 0 above the upper bound is clipped; A < 0 below the lower bound too (the pessimistic side).
        ("ppo", {}, [-1.0, -2.4, 0.8, 0.0]),
        ("ppo", WIDE, [-1.0, -4.0, 0.5, 0.0]),
        # Only the upper side is capped, and at 4: a token that the policy has left keeps its small weight.
        ("cispo", {}, [-1.0 * P[0], -3.0 * 2 * P[1], 0.25 * P[2], 0.0]),
        ("cispo", {"clip_high_threshold": 2.0}, [-1.0 * P[0], -2.0 * 2 * P[1], 0.25 * P[2], 0.0]),
        ("cispo", WIDE, [-1.0 * P[0], -2.0 * 2 * P[1], 0.5 * P[2], 0.0]),
        # Every token carries the one ratio of the sequence: 1.442, above the bounds.
        ("gspo", {}, [-1.0004, -2 * 1.0004, S, 0.0]),
        ("gspo", WIDE, [-S, -2 * S, S, 0.0]),
        ("dro", {"beta": 0.5}, -(P * A - 0.25 * (P - Q) ** 2)),
        # A ratio of 3 counts as 1, one of 0.25 as it is.
        ("stable_reinforce", {"kl_coeff": 0.0}, [-P[0], -2 * P[1], 0.25 * P[2], 0.0]),
        ("stable_reinforce", {}, np.array([-P[0], -2 * P[1], 0.25 * P[2], 0.0]) + 0.005 * LOG_R**2),
    ],
)
def test_loss_equals_its_formula(name: str, config: dict[str, float], expected: list[float]) -> None:
    loss = LOSSES[name]
    losses = loss.function(torch.tensor(P), loss_inputs(loss, config), {**loss.config, **config})
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("importance_sampling", [-1.0, -6.0, 0.25, 0.0]),  # d(-r A)/d log p = -r A
        ("ppo", [-1.0, 0.0, 0.0, 0.0]),  # nothing flows through a clipped ratio
        ("cispo", [-1.0, -6.0, 0.25, 0.0]),  # the clipped ratio is a constant weight: every token learns
        ("gspo", [0.0, 0.0, S, 0.0]),  # the sequence's ratio, the token's own gradient
        ("dro", -(A - 0.5 * (P - Q))),
        ("stable_reinforce", np.array([-1.0, -2.0, 0.25, 0.0]) + 0.01 * LOG_R),  # nothing flows through the weight
    ],
)
def test_gradient_by_log_p(name: str, expected: list[float]) -> None:
    loss = LOSSES[name]
    logprobs = torch.tensor(P, requires_grad=True)
    config = {**loss.config, "beta": 0.5}
    (gradient,) = torch.autograd.grad(loss.function(logprobs, loss_inputs(loss), config).sum(), logprobs)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-7, atol=1e-7)


def test_clip_thresholds_may_differ_by_token() -> None:
    inputs = loss_inputs(LOSSES["ppo"])
    inputs["clip_high_threshold"] = torch.tensor([1.2, 2.5, 1.2, 1.2])
    losses = LOSSES["ppo"].function(torch.tensor(P), inputs, {})
    np.testing.assert_allclose(losses.numpy(), [-1.0, -5.0, 0.8, 0.0], rtol=1e-7)


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_a_policy_loss_takes_what_the_contract_says_of_it(name: LossName) -> None:
    row, of_service = POLICY_LOSSES[name], LOSSES[name]
    thresholds = row.clips.as_loss_config() if row.clips else {}
    assert set(of_service.settings) == ({"beta"} if row.pulls_back else set(thresholds))
    assert row.marks_sequence == ("sequence_ratio_mask" in of_service.required)
