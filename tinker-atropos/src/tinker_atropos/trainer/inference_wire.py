"""Requests and answers of the inference server: sglang's `/generate`, and OpenAI's completions and chat.

Unknown fields are ignored, as both servers do.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from tinker_atropos.trainer.generation import Generation
from tinker_atropos.trainer.policy import Sample, SamplingSettings
from tinker_atropos.trainer.rollouts import Ints

PING_TEXT = "hi"


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Sampling(_Request):
    """The fields that all three routes share."""

    n: int = Field(default=1, ge=1, le=1024)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: Literal[False] = False

    def settings(self, max_tokens: int, eos: str | None) -> SamplingSettings:
        """`stop` in Tinker's sense: an empty list would switch EOS off, and strings replace EOS, so it is added."""
        stop = [self.stop] if isinstance(self.stop, str) else list(self.stop or [])
        if stop and eos is not None:
            stop.append(eos)
        return SamplingSettings(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or -1,
            stop=tuple(stop) or None,
            seed=self.seed,
        )


class SglangSampling(_Sampling):
    max_new_tokens: int = Field(default=128, ge=1)


class GenerateRequest(_Request):
    """`POST /generate` in sglang's shape: `text` or `input_ids` of one prompt."""

    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: SglangSampling = SglangSampling()
    return_text_in_logprobs: bool = False


class CompletionRequest(_Sampling):
    """`POST /v1/completions`: one prompt, as text or token ids."""

    prompt: str | list[int]
    model: str = ""
    max_tokens: int = Field(default=16, ge=1)
    logprobs: int | None = None

    @property
    def is_ping(self) -> bool:
        return self.prompt == PING_TEXT and self.max_tokens == 1


class ChatRequest(_Sampling):
    """`POST /v1/chat/completions`. `max_tokens` None: as much as the context has room for."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    model: str = ""
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool | None = None

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def is_ping(self) -> bool:
        contents = [message.get("content") for message in self.messages]
        return contents == [PING_TEXT] and self.token_limit == 1


def generate_answer(
    generation: Generation, texts: list[str], prompt_T: Ints, token_texts: list[list[str]] | None
) -> Any:
    """One object for one sample, a list for several. `policy_step` is ours; sglang's clients ignore it."""
    answers = [
        {
            "text": text,
            "output_ids": sample.tokens_T.tolist(),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "finish_reason": _sglang_finish(sample),
                "prompt_tokens": len(prompt_T),
                "completion_tokens": len(sample.tokens_T),
                "policy_step": generation.policy_step,
                "output_token_logprobs": _sglang_logprobs(sample, token_texts[index] if token_texts else None),
            },
        }
        for index, (sample, text) in enumerate(zip(generation.samples, texts, strict=True))
    ]
    return answers[0] if len(answers) == 1 else answers


def _sglang_finish(sample: Sample) -> dict[str, Any]:
    if sample.stop_reason == "length":
        return {"type": "length", "length": len(sample.tokens_T)}
    return {"type": "stop", "matched": int(sample.tokens_T[-1]) if len(sample.tokens_T) else None}


def _sglang_logprobs(sample: Sample, token_texts: list[str] | None) -> list[tuple[float, int, str | None]]:
    texts: Sequence[str | None] = token_texts or [None] * len(sample.tokens_T)
    return list(zip(sample.logprobs_T.tolist(), sample.tokens_T.tolist(), texts, strict=True))


def completion_answer(
    request: CompletionRequest, generation: Generation, texts: list[str], token_texts: list[list[str]], prompt_T: Ints
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "text": text,
            "finish_reason": sample.stop_reason,
            "logprobs": None
            if request.logprobs is None
            else {"tokens": tokens, "token_logprobs": sample.logprobs_T.tolist(), "text_offset": _offsets(tokens)},
        }
        for index, (sample, text, tokens) in enumerate(zip(generation.samples, texts, token_texts, strict=True))
    ]
    return _openai_answer("cmpl", "text_completion", request.model, choices, _usage(generation, prompt_T))


def chat_answer(
    request: ChatRequest, generation: Generation, texts: list[str], token_texts: list[list[str]], prompt_T: Ints
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": sample.stop_reason,
            "logprobs": {"content": _chat_logprobs(sample, tokens)} if request.logprobs else None,
        }
        for index, (sample, text, tokens) in enumerate(zip(generation.samples, texts, token_texts, strict=True))
    ]
    return _openai_answer("chatcmpl", "chat.completion", request.model, choices, _usage(generation, prompt_T))


def ping_answer(request: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """What a health ping gets: no backend call, which would be billed once a second."""
    usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    if isinstance(request, ChatRequest):
        choice["message"] = {"role": "assistant", "content": ""}
        return _openai_answer("chatcmpl", "chat.completion", request.model, [choice], usage)
    return _openai_answer("cmpl", "text_completion", request.model, [{**choice, "text": ""}], usage)


def _openai_answer(
    prefix: str, kind: str, model: str, choices: list[dict[str, Any]], usage: dict[str, int]
) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": usage,
    }


def _usage(generation: Generation, prompt_T: Ints) -> dict[str, int]:
    completion = sum(len(sample.tokens_T) for sample in generation.samples)
    return {
        "prompt_tokens": len(prompt_T),
        "completion_tokens": completion,
        "total_tokens": len(prompt_T) + completion,
    }


def _offsets(token_texts: list[str]) -> list[int]:
    ends = np.cumsum([0, *map(len, token_texts)])
    return [int(end) for end in ends[:-1]]


def _chat_logprobs(sample: Sample, token_texts: list[str]) -> list[dict[str, Any]]:
    return [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logprob in zip(token_texts, sample.logprobs_T.tolist(), strict=True)
    ]
