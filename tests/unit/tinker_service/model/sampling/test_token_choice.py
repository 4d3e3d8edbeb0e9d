"""A draw becomes a token of its own request's distribution."""

import dataclasses

import numpy as np
import pytest
import torch

from tinker_service.model.sampling.sample_jobs import SamplingRequest
from tinker_service.model.sampling.token_choice import choose, distribution


def request(**changes: object) -> SamplingRequest:
    return dataclasses.replace(SamplingRequest(prompt=(1,), num_samples=1, max_tokens=8), **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.1, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        ({"top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_k": 9}, [0.1, 0.2, 0.3, 0.4]),
        ({"top_p": 0.41}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.4}, [0, 0, 0, 1]),
        ({"top_k": 3, "top_p": 0.5}, [0, 0, 3 / 7, 4 / 7]),
        ({"temperature": 0.0}, [0, 0, 0, 1]),
    ],
)
def test_draws_follow_the_distribution(changes: dict[str, float], expected: list[float]) -> None:
    """A grid of draws lands on each token in proportion to its probability; rows keep their own parameters."""
    draws = torch.arange(0.0005, 1, 0.001, dtype=torch.float64)
    rows = [request(**changes), request(temperature=1.7)] * len(draws)
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(len(rows), 1)
    chosen = choose(distribution(logits, rows), draws.repeat_interleave(2))[::2]
    shares = torch.bincount(chosen, minlength=4) / len(draws)
    np.testing.assert_allclose(shares.numpy(), expected, atol=0.0015)
