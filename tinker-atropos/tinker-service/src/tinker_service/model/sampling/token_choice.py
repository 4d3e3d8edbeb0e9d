"""From logits to tokens: each row by its own request's temperature, top_k and top_p, and its own draw.

A draw becomes a token by inverting the cumulative distribution: the rest of the batch changes a token only if a draw
falls within rounding of a boundary (1e-15 for small models, which compute in double precision; 1e-6 for others).

Logprobs are those of the distribution that was sampled from: after temperature, top_k and top_p. The importance ratio
p / q of a loss is then the true one, whatever the sampling parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tinker_service.model.sampling.sample_jobs import Continuation, SamplingRequest

MAX_LOGITS_AT_ONCE = 2**24  # a distribution takes several tensors of this size


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next token of some rows, its logprob, and the likeliest tokens with theirs where a request wants them."""

    tokens: list[int]
    logprobs: list[float]
    top: dict[int, tuple[torch.Tensor, torch.Tensor]]  # by row


def draw(logits_BV: torch.Tensor, rows: Sequence[Continuation]) -> Drawn:
    """Draw the next token of every row; the rows are not changed (but for their generators)."""
    at_once = max(1, MAX_LOGITS_AT_ONCE // logits_BV.shape[-1])
    drawn = Drawn([], [], {})
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        logprobs_BV = distribution(logits_BV[start : start + at_once], [row.request for row in part])
        uniform_B = torch.tensor([row.draw() for row in part], dtype=torch.float64)
        tokens_B = choose(logprobs_BV, uniform_B.to(logprobs_BV.device))
        drawn.tokens.extend(tokens_B.tolist())
        drawn.logprobs.extend(logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1).tolist())
        for index, row in enumerate(part):
            if row.request.top_logprobs:
                best = logprobs_BV[index].topk(row.request.top_logprobs)
                drawn.top[start + index] = (best.indices, best.values)
    return drawn


def distribution(logits_BV: torch.Tensor, requests: Sequence[SamplingRequest]) -> torch.Tensor:
    """Logprobs [B, V] of what each row's request samples from; temperature 0: all mass on the best token."""
    temperatures = {request.temperature for request in requests}
    if temperatures == {1.0}:
        scaled_BV, greedy_B1 = logits_BV, None
    else:
        temperature_B1 = _column([request.temperature for request in requests], logits_BV)
        greedy_B1 = temperature_B1 == 0 if 0 in temperatures else None
        scaled_BV = logits_BV / (temperature_B1 if greedy_B1 is None else temperature_B1.masked_fill(greedy_B1, 1.0))
    if any(request.top_k > 0 for request in requests):
        scaled_BV = _keep_top_k(scaled_BV, [request.top_k for request in requests])
    if any(request.top_p < 1 for request in requests):
        scaled_BV = _keep_top_p(scaled_BV, _column([request.top_p for request in requests], logits_BV))
    logprobs_BV = scaled_BV - scaled_BV.logsumexp(-1, keepdim=True)
    if greedy_B1 is None:
        return logprobs_BV
    best_BV = torch.full_like(logits_BV, -torch.inf).scatter(-1, logits_BV.argmax(-1, keepdim=True), 0.0)
    return torch.where(greedy_B1, best_BV, logprobs_BV)


def choose(logprobs_BV: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    """Tokens [B]: each row's uniform draw in [0, 1) inverted through its distribution."""
    cumulative_BV = logprobs_BV.exp().double().cumsum(-1)
    drawn_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    chosen_B = torch.searchsorted(cumulative_BV, drawn_B1, right=True).squeeze(-1)
    return chosen_B.clamp(max=logprobs_BV.shape[-1] - 1)


def _keep_top_k(scaled_BV: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    vocabulary = scaled_BV.shape[-1]
    rank_B1 = torch.tensor([[k if 0 < k < vocabulary else vocabulary] for k in top_k], device=scaled_BV.device) - 1
    smallest_kept_B1 = scaled_BV.sort(-1, descending=True).values.gather(-1, rank_B1)
    return scaled_BV.masked_fill(scaled_BV < smallest_kept_B1, -torch.inf)


def _keep_top_p(scaled_BV: torch.Tensor, top_p_B1: torch.Tensor) -> torch.Tensor:
    """Nucleus sampling (Holtzman et al. 2020): the fewest tokens whose probabilities reach top_p."""
    probabilities_BV, order_BV = scaled_BV.softmax(-1).sort(-1, descending=True)
    before_BV = probabilities_BV.cumsum(-1) - probabilities_BV
    dropped_BV = torch.zeros_like(before_BV, dtype=torch.bool).scatter(-1, order_BV, before_BV >= top_p_B1)
    return scaled_BV.masked_fill(dropped_BV, -torch.inf)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
