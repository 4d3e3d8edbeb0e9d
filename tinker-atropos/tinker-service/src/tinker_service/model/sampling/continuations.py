"""What is sampled: a request, and each of its sequences while it grows."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

StopReason = Literal["stop", "length"]
Decode = Callable[[list[int]], str]

DRAWS_AT_ONCE = 64


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
    """One sampled sequence. `stop_reason` None: not finished."""

    request: SamplingRequest
    generator: np.random.Generator
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    stop_reason: StopReason | None = None
    _draws: list[float] = field(default_factory=list)  # the next ones, last first

    def draw(self) -> float:
        """The next uniform number in [0, 1) of this sequence's own generator."""
        if not self._draws:
            self._draws = self.generator.random(DRAWS_AT_ONCE)[::-1].tolist()
        return self._draws.pop()

    def append(self, token: int, logprob: float, top: tuple[torch.Tensor, torch.Tensor] | None, decode: Decode) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if top is not None:
            self.top.append(top)
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


def new_continuations(request: SamplingRequest) -> list[Continuation]:
    """The request's sequences. Each draws from a generator of its own, seeded by (the request's seed, its index): what
    else is in the batch changes none of its draws.
    """
    seed = secrets.randbits(63) if request.seed is None else abs(request.seed)
    return [
        Continuation(request, np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, index]))))
        for index in range(request.num_samples)
    ]
