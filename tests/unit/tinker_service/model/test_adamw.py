"""Our AdamW is torch.optim.AdamW's update."""

import pytest
import torch

from tinker_service.model.adamw import AdamSettings, AdamState, adamw_step


@pytest.mark.parametrize("clip", [0.0, 1.0, 1e6])
def test_equals_torch(clip: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5,))]
    theirs = [tensor.clone().requires_grad_() for tensor in ours]
    optimizer = torch.optim.AdamW(theirs, lr=0.01, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.1)
    state = AdamState.zeros(ours)
    settings = AdamSettings(0.01, 0.9, 0.95, 1e-12, 0.1, clip)
    for _ in range(5):
        gradients = [torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * 3 for tensor in ours]
        for tensor, gradient in zip(theirs, gradients, strict=True):
            tensor.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_(theirs, clip or float("inf"))
        optimizer.step()
        assert adamw_step(ours, gradients, state, settings) == pytest.approx(float(norm))
    for mine, other in zip(ours, theirs, strict=True):
        # torch's clipping divides by (norm + 1e-6)
        torch.testing.assert_close(mine, other.detach(), rtol=1e-6, atol=1e-7)
