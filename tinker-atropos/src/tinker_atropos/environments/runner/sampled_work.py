"""What a piece of an environment's work samples through `env.server`, and what for.

The work is told apart by a context variable: tasks inherit it, so that it holds for whatever an environment starts.
Evaluations say so in their requests (`rl_purpose`): the trainer keeps them out of the books of training. An environment
that goes past `env.server`, with a client of its own, is not seen here.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

Wrapper = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class SampledWork:
    """What came back so far."""

    purpose: Literal["training", "evaluation"]
    completions: int = 0
    tokens: int = 0


_current: ContextVar[SampledWork | None] = ContextVar("sampled", default=None)


@contextlib.contextmanager
def sampling(purpose: Literal["training", "evaluation"]) -> Iterator[SampledWork]:
    """Count what is sampled from inside the block."""
    sampled = SampledWork(purpose)
    token = _current.set(sampled)
    try:
        yield sampled
    finally:
        _current.reset(token)


def watch(server: Any) -> None:
    """Mark and count the requests of one of atroposlib's servers, at the three methods that all of them go through."""
    server._tokens_and_logprobs_completion_wrapper = _by_tokens(server._tokens_and_logprobs_completion_wrapper)  # noqa: SLF001 -- see above
    server._completion_wrapper = _by_usage(server._completion_wrapper)  # noqa: SLF001 -- see above
    server._chat_completion_wrapper = _by_usage(server._chat_completion_wrapper)  # noqa: SLF001 -- see above


def _by_tokens(request: Wrapper) -> Wrapper:
    """`/generate`: keyword arguments become its sampling parameters."""

    async def watched(**kwargs: Any) -> Any:
        sampled = _current.get()
        if sampled is not None and sampled.purpose == "evaluation":
            kwargs["rl_purpose"] = "evaluation"
        answer = await request(**kwargs)
        if sampled is not None:
            _, outputs, _, _ = answer
            sampled.completions += len(outputs)
            sampled.tokens += sum(map(len, outputs))
        return answer

    return watched


def _by_usage(request: Wrapper) -> Wrapper:
    """OpenAI's routes: `extra_body` is its client's way to send further fields."""

    async def watched(**kwargs: Any) -> Any:
        sampled = _current.get()
        if sampled is not None and sampled.purpose == "evaluation":
            kwargs["extra_body"] = {**(kwargs.get("extra_body") or {}), "rl_purpose": "evaluation"}
        answer = await request(**kwargs)
        if sampled is not None:
            sampled.completions += len(answer.choices)
            sampled.tokens += answer.usage.completion_tokens if answer.usage else 0
        return answer

    return watched
