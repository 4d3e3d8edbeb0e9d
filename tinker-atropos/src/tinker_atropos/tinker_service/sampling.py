"""The sampling half of the engine: many requests, each with its own parameters, in one batch with a KV cache.

Every sequence draws from a generator of its own, seeded by (the request's seed, its index), and a draw becomes a token
by inverting the cumulative distribution: what else is in the batch changes a token only where a draw falls within
rounding of a boundary (1e-15 for small models, which compute in double precision; 1e-6 for others).
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from tinker_atropos.tinker_service.lora import Adapter, LoraModel
from tinker_atropos.tinker_service.training import target_logprobs

StopReason = Literal["stop", "length"]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """One prompt and how to continue it. `temperature` 0 is greedy; `top_k` -1 and `top_p` 1 do nothing.

    Stop tokens end a sequence and belong to it; so does the token that completes a stop string. `seed` None: random.
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

    @property
    def token_slots(self) -> int:
        """Its room in the KV cache, in tokens, when nothing stops early."""
        return self.num_samples * (len(self.prompt) + self.max_tokens)


@dataclass(slots=True)
class Continuation:
    """One sampled sequence; `logprobs` are of the model's distribution at temperature 1, whatever was sampled from."""

    request: SamplingRequest
    generator: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: StopReason | None = None

    def append(self, token: int, logprob: float, decode: Decode) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.request.stop_tokens or self._ends_with_stop_string(decode):
            self.stop_reason = "stop"
        elif len(self.tokens) == self.request.max_tokens:
            self.stop_reason = "length"

    def _ends_with_stop_string(self, decode: Decode) -> bool:
        strings = self.request.stop_strings
        if not strings:
            return False
        # A token holds at least one byte; four more for a character that the window would cut.
        window = max(len(string.encode()) for string in strings) + 4
        text = decode(self.tokens[-window:])
        return any(string in text for string in strings)


@torch.inference_mode()
def generate(
    model: LoraModel, adapter: Adapter | None, requests: Sequence[SamplingRequest], decode: Decode
) -> list[list[Continuation]]:
    """Continue every request's prompt; one list of `num_samples` continuations per request, in order."""
    continuations = [_start(request) for request in requests]
    with model.adapted(adapter) as adapted:
        batch = _Batch.prefill(adapted, requests, [row for rows in continuations for row in rows])
        while batch.rows:
            tokens_B, logprobs_B = batch.draw()
            for row, token, logprob in zip(batch.rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
                row.append(token, logprob, decode)
            unfinished = [index for index, row in enumerate(batch.rows) if row.stop_reason is None]
            batch.advance(tokens_B, unfinished)
    return continuations


@torch.inference_mode()
def prompt_logprobs(model: LoraModel, adapter: Adapter | None, prompt: Sequence[int]) -> list[float]:
    """Logprob of each prompt token given those before it; the first has none: NaN."""
    if len(prompt) < 2:
        return [float("nan")] * len(prompt)
    with model.adapted(adapter) as adapted:
        tokens_1T = torch.tensor([prompt], device=adapted.device)
        logprobs: list[float] = target_logprobs(adapted, tokens_1T[:, :-1], tokens_1T[:, 1:])[0].tolist()
    return [float("nan"), *logprobs]


def _start(request: SamplingRequest) -> list[Continuation]:
    seed = secrets.randbits(63) if request.seed is None else request.seed
    return [
        Continuation(request, np.random.Generator(np.random.Philox(np.random.SeedSequence([abs(seed), index]))))
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
        """The next token of every row [B], and its logprob at temperature 1 [B]."""
        uniform_B = torch.tensor([row.generator.random() for row in self.rows], dtype=torch.float64)
        requests = [row.request for row in self.rows]
        tokens_B = choose(self.logits_BV, uniform_B.to(self.logits_BV.device), requests)
        logprobs_B = self.logits_BV.gather(-1, tokens_B[:, None]).squeeze(-1) - self.logits_BV.logsumexp(-1)
        return tokens_B, logprobs_B

    def advance(self, tokens_B: torch.Tensor, unfinished: list[int]) -> None:
        """Forget finished rows and run the model on the last token of the others."""
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


def choose(logits_BV: torch.Tensor, uniform_B: torch.Tensor, requests: Sequence[SamplingRequest]) -> torch.Tensor:
    """Tokens [B]: each row's uniform draw inverted through its request's distribution; temperature 0 takes the best."""
    temperature_B1 = _column([request.temperature for request in requests], logits_BV)
    greedy_B1 = temperature_B1 == 0
    scaled_BV = logits_BV / temperature_B1.masked_fill(greedy_B1, 1.0)
    if any(request.top_k > 0 for request in requests):
        scaled_BV = _keep_top_k(scaled_BV, [request.top_k for request in requests])
    if any(request.top_p < 1 for request in requests):
        scaled_BV = _keep_top_p(scaled_BV, _column([request.top_p for request in requests], logits_BV))
    cumulative_BV = scaled_BV.softmax(-1).double().cumsum(-1)
    drawn_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    sampled_B = torch.searchsorted(cumulative_BV, drawn_B1, right=True).squeeze(-1)
    sampled_B = sampled_B.clamp(max=logits_BV.shape[-1] - 1)
    return torch.where(greedy_B1.squeeze(-1), logits_BV.argmax(-1), sampled_B)


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
