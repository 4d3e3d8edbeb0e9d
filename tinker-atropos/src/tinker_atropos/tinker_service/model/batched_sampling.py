"""The sampling half of the engine: many requests, each with its own parameters, in one batch with a KV cache.

Every sequence draws from its own generator, seeded by (the request's seed, its index), and a draw becomes a token by
inverting the cumulative distribution: the rest of the batch changes a token only if a draw falls within rounding of
a boundary (1e-15 for small models, which compute in double precision; 1e-6 for others).

Logprobs are those of the distribution that was sampled from: after temperature, top_k and top_p. The importance ratio
p / q of a loss is then the true one, whatever the sampling parameters.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from tinker_atropos.tinker_service.model.lora import Adapter, LoraModel

StopReason = Literal["stop", "length"]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """One prompt and how to continue it. `temperature` 0 is greedy; `top_k` -1 and `top_p` 1 have no effect.

    Stop tokens end a sequence and belong to it; so does the token that completes a stop string. `seed` None: random.
    `top_logprobs`: how many of the likeliest tokens are reported for each sampled one.
    """

    prompt: tuple[int, ...]
    num_samples: int
    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    seed: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """The likeliest tokens [T, K] at T positions with their logprobs, best first; impossible ones have -inf."""

    tokens: np.ndarray[tuple[int, int], np.dtype[np.int32]]
    logprobs: np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass(slots=True)
class Continuation:
    """One sampled sequence. `stop_reason` None: not finished, or canceled."""

    request: SamplingRequest
    request_index: int
    generator: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    stop_reason: StopReason | None = None

    def append(self, token: int, logprob: float, decode: Decode) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.request.stop_tokens or self._ends_with_stop_string(decode):
            self.stop_reason = "stop"
        elif len(self.tokens) == self.request.max_tokens:
            self.stop_reason = "length"

    @property
    def top_logprobs(self) -> TopLogprobs | None:
        """None if the request did not ask for them."""
        if not self.top:
            return None
        tokens, logprobs = (torch.stack(rows).cpu().numpy() for rows in zip(*self.top, strict=True))
        return TopLogprobs(tokens.astype(np.int32), logprobs.astype(np.float32))

    def _ends_with_stop_string(self, decode: Decode) -> bool:
        strings = self.request.stop_strings
        if not strings:
            return False
        # A token is at least one byte; four more for a character that the window would cut.
        window = max(len(string.encode()) for string in strings) + 4
        text = decode(self.tokens[-window:])
        return any(string in text for string in strings)


def _never(_request_index: int) -> bool:
    return False


@torch.inference_mode()
def generate(
    model: LoraModel,
    adapter: Adapter | None,
    requests: Sequence[SamplingRequest],
    decode: Decode,
    given_up: Callable[[int], bool] = _never,
) -> list[list[Continuation]]:
    """Continue every request's prompt; one list of `num_samples` continuations per request, in order.

    `given_up` returns whether the request at an index was canceled: it then takes no further step.
    """
    continuations = [_start(request, index) for index, request in enumerate(requests)]
    with model.adapted(adapter) as adapted:
        batch = _Batch.prefill(adapted, requests, [row for rows in continuations for row in rows])
        while batch.rows:
            tokens_B, logprobs_B = batch.draw()
            for row, token, logprob in zip(batch.rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
                row.append(token, logprob, decode)
            unfinished = [
                index
                for index, row in enumerate(batch.rows)
                if row.stop_reason is None and not given_up(row.request_index)
            ]
            batch.advance(tokens_B, unfinished)
    return continuations


def _start(request: SamplingRequest, request_index: int) -> list[Continuation]:
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return [
        Continuation(
            request, request_index, np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), index])))
        )
        for index in range(request.num_samples)
    ]


@dataclass(slots=True)
class _Batch:
    """The unfinished sequences, and what the model knows about each. Axis B is rows; prompts are padded on the left."""

    model: PreTrainedModel
    rows: list[Continuation]
    cache: DynamicCache
    mask_BT: torch.Tensor
    positions_B: torch.Tensor
    logits_BV: torch.Tensor

    @classmethod
    def prefill(cls, model: PreTrainedModel, requests: Sequence[SamplingRequest], rows: list[Continuation]) -> "_Batch":
        """Run every prompt once, however many samples it gets."""
        longest = max(len(request.prompt) for request in requests)
        padding = [longest - len(request.prompt) for request in requests]
        tokens_BT = torch.tensor(
            [[0] * pad + list(request.prompt) for pad, request in zip(padding, requests, strict=True)]
        ).to(model.device)
        mask_BT = torch.arange(longest)[None, :] >= torch.tensor(padding)[:, None]
        batch = cls(
            model=model,
            rows=rows,
            cache=DynamicCache(config=model.config),
            mask_BT=mask_BT.long().to(model.device),
            positions_B=torch.tensor([len(request.prompt) for request in requests], device=model.device),
            logits_BV=torch.empty(0),
        )
        batch._run(tokens_BT, (batch.mask_BT.cumsum(-1) - 1).clamp(min=0))
        samples = torch.tensor([request.num_samples for request in requests], device=model.device)
        batch._select(torch.arange(len(requests), device=model.device).repeat_interleave(samples))
        return batch

    def draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next token of every row [B], and its logprob [B]."""
        requests = [row.request for row in self.rows]
        logprobs_BV = distribution(self.logits_BV, requests)
        uniform_B = torch.tensor([row.generator.random() for row in self.rows], dtype=torch.float64)
        tokens_B = choose(logprobs_BV, uniform_B.to(logprobs_BV.device))
        for index, row in enumerate(self.rows):
            if row.request.top_logprobs:
                best = logprobs_BV[index].topk(row.request.top_logprobs)
                row.top.append((best.indices, best.values))
        return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1)

    def advance(self, tokens_B: torch.Tensor, unfinished: list[int]) -> None:
        """Drop finished rows and run the model on the last token of the others."""
        if len(unfinished) < len(self.rows):
            index = torch.tensor(unfinished, dtype=torch.long, device=tokens_B.device)
            self.rows = [self.rows[row] for row in unfinished]
            tokens_B = tokens_B[index]
            self._select(index)
        if not self.rows:
            return
        self.mask_BT = torch.cat([self.mask_BT, self.mask_BT.new_ones(len(self.rows), 1)], dim=1)
        self._run(tokens_B[:, None], self.positions_B[:, None])
        self.positions_B = self.positions_B + 1

    def _run(self, tokens_BT: torch.Tensor, positions_BT: torch.Tensor) -> None:
        output = self.model(
            input_ids=tokens_BT,
            attention_mask=self.mask_BT,
            position_ids=positions_BT,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.logits_BV = output.logits[:, -1]

    def _select(self, index: torch.Tensor) -> None:
        self.cache.batch_select_indices(index)
        self.mask_BT, self.positions_B = self.mask_BT[index], self.positions_B[index]
        self.logits_BV = self.logits_BV[index]


def distribution(logits_BV: torch.Tensor, requests: Sequence[SamplingRequest]) -> torch.Tensor:
    """Logprobs [B, V] of what each row's request samples from; temperature 0: all mass on the best token."""
    temperature_B1 = _column([request.temperature for request in requests], logits_BV)
    greedy_B1 = temperature_B1 == 0
    scaled_BV = logits_BV / temperature_B1.masked_fill(greedy_B1, 1.0)
    if any(request.top_k > 0 for request in requests):
        scaled_BV = _keep_top_k(scaled_BV, [request.top_k for request in requests])
    if any(request.top_p < 1 for request in requests):
        scaled_BV = _keep_top_p(scaled_BV, _column([request.top_p for request in requests], logits_BV))
    logprobs_BV = scaled_BV - scaled_BV.logsumexp(-1, keepdim=True)
    if not greedy_B1.any():
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
