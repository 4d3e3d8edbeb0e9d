"""What is sampled: a request, each of its sequences while it grows, who asked, and if the answer is still wanted."""

import secrets
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from tinker_service.model.lora import LoraAdapter
from tinker_service.service_errors import CANCELLED, DroppedError, RequestError

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
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
class PromptScoring:
    """Which scores a request wants for its prompt of T tokens.

    `last_n` limits `logprobs` and `top_k` to the last tokens (None: all). `targets` [T - 1, K]: token ids to score at
    positions 1 to T - 1. `draws`: tokens drawn at every position after the first, at `temperature`.
    """

    logprobs: bool = False
    last_n: int | None = None
    top_k: int = 0
    targets: Integers | None = None
    draws: int = 0
    temperature: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """The likeliest tokens [T, K] at T positions with their logprobs, best first; impossible ones have -inf."""

    tokens: np.ndarray[tuple[int, int], np.dtype[np.int32]]
    logprobs: np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The scores; None for what was not requested. NaN (`logprobs` [T]) and -inf (`top` [T, K]) where not scored.

    `targets` [T - 1, K] is 0 where nothing was requested. `drawn`: token ids and logprobs, both [T - 1, draws].
    """

    logprobs: Floats | None = None
    top: TopLogprobs | None = None
    targets: Floats | None = None
    drawn: tuple[Integers, Floats] | None = None


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


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """The answer to one sample request."""

    continuations: list[Continuation]
    prompt: PromptScores


class SampleFuture(Future[SampleAnswer]):
    """A future that can be canceled while it runs: sampling then stops at the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = False

    def cancel(self) -> bool:
        self.given_up = True
        return super().cancel()


@dataclass(slots=True, eq=False)
class SampleJob:
    """One sample request. `adapter` None: the base model; `has_client` returns whether its client is still there."""

    adapter: LoraAdapter | None
    request: SamplingRequest
    scoring: PromptScoring | None = None
    has_client: Callable[[], bool] = lambda: True
    future: SampleFuture = field(default_factory=SampleFuture)
    continuations: list[Continuation] = field(init=False)
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was sampled."""
        self.continuations = new_continuations(self.request)
        self.unfinished = len(self.continuations)

    def refusal(self) -> RequestError | None:
        """Why nobody waits for the answer (any more)."""
        if self.future.given_up:
            return RequestError(CANCELLED)
        return None if self.has_client() else DroppedError()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence of a job."""

    job: SampleJob
    continuation: Continuation

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens so far, of prompt and answer."""
        prompt, tokens = self.continuation.request.prompt, self.continuation.tokens
        return (*prompt, *tokens) if tokens else prompt  # all samples of a request have this one in common
