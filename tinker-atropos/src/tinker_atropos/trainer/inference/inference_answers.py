"""Answers of the inference server, in sglang's and OpenAI's shapes.

Texts end before the stop that ended them, as both protocols specify. Token ids and logprobs cover everything that
was sampled, including the stop: that is what is trained.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinker_atropos.trainer.backend.policy import Sample
from tinker_atropos.trainer.data.groups import Ints
from tinker_atropos.trainer.inference.generation import GeneratedSamples
from tinker_atropos.trainer.inference.inference_wire import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    InferenceRequest,
)
from tinker_atropos.trainer.inference.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Written:
    """A sample and its text. `matched` is the stop that ended it, a string or a token id; None at the length limit."""

    sample: Sample
    text: str
    matched: str | int | None


def write(sample: Sample, request: InferenceRequest, tokenizer: Tokenizer) -> Written:
    tokens_T, skip = sample.tokens_T, request.skip_special_tokens
    if sample.stop_reason == "length" or not len(tokens_T):
        return Written(sample, tokenizer.decode(tokens_T, skip_special_tokens=skip), None)
    last = int(tokens_T[-1])
    if last == tokenizer.eos_id or last in request.stop_ids:
        return Written(sample, tokenizer.decode(tokens_T[:-1], skip_special_tokens=skip), last)
    text = tokenizer.decode(tokens_T, skip_special_tokens=skip)
    stop = first_stop(text, request.stop_strings)
    return Written(sample, text, last) if stop is None else Written(sample, text[: text.index(stop)], stop)


def first_stop(text: str, stops: Sequence[str]) -> str | None:
    """The stop string that begins first in the text."""
    return min((stop for stop in stops if stop in text), key=text.index, default=None)


def generate_answer(body: GenerateRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer) -> Any:
    """One object for one sample, a list for several. `policy_step` is ours; sglang's clients ignore it."""
    answers = [
        {
            "text": written.text,
            "output_ids": written.sample.tokens_T.tolist(),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "finish_reason": _sglang_finish(written),
                "prompt_tokens": len(prompt_T),
                "completion_tokens": len(written.sample.tokens_T),
                "policy_step": generation.policy_step,
                "output_token_logprobs": _sglang_logprobs(
                    written.sample, tokenizer if body.return_text_in_logprobs else None
                ),
            },
        }
        for written in (write(sample, body.sampling_params, tokenizer) for sample in generation.samples)
    ]
    return answers[0] if len(answers) == 1 else answers


def _sglang_finish(written: Written) -> dict[str, Any]:
    if written.sample.stop_reason == "length":
        return {"type": "length", "length": len(written.sample.tokens_T)}
    return {"type": "stop", "matched": written.matched}


def _sglang_logprobs(sample: Sample, tokenizer: Tokenizer | None) -> list[tuple[float, int, str | None]]:
    texts = tokenizer.decode_each(sample.tokens_T) if tokenizer else [None] * len(sample.tokens_T)
    return list(zip(sample.logprobs_T.tolist(), sample.tokens_T.tolist(), texts, strict=True))


def completion_answer(
    body: CompletionRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "text": write(sample, body, tokenizer).text,
            "finish_reason": sample.stop_reason,
            "logprobs": _completion_logprobs(sample, tokenizer) if body.wants_logprobs else None,
        }
        for index, sample in enumerate(generation.samples)
    ]
    return _openai_answer("cmpl", "text_completion", body.model, choices, _usage(generation, prompt_T))


def _completion_logprobs(sample: Sample, tokenizer: Tokenizer) -> dict[str, Any]:
    tokens = tokenizer.decode_each(sample.tokens_T)
    offsets = np.cumsum([0, *map(len, tokens)])[:-1].tolist()
    logprobs = sample.logprobs_T.tolist()
    return {"tokens": tokens, "token_logprobs": logprobs, "text_offset": offsets, "top_logprobs": None}


def chat_answer(
    body: ChatRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer
) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": write(sample, body, tokenizer).text},
            "finish_reason": sample.stop_reason,
            "logprobs": {"content": _chat_logprobs(sample, tokenizer)} if body.logprobs else None,
        }
        for index, sample in enumerate(generation.samples)
    ]
    return _openai_answer("chatcmpl", "chat.completion", body.model, choices, _usage(generation, prompt_T))


def _chat_logprobs(sample: Sample, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logprob in zip(tokenizer.decode_each(sample.tokens_T), sample.logprobs_T.tolist(), strict=True)
    ]


def ping_answer(body: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """The answer to a health ping, without a backend call, which would be billed once a second."""
    usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    if isinstance(body, ChatRequest):
        choice["message"] = {"role": "assistant", "content": ""}
        return _openai_answer("chatcmpl", "chat.completion", body.model, [choice], usage)
    return _openai_answer("cmpl", "text_completion", body.model, [{**choice, "text": ""}], usage)


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


def _usage(generation: GeneratedSamples, prompt_T: Ints) -> dict[str, int]:
    completion = sum(len(sample.tokens_T) for sample in generation.samples)
    return {
        "prompt_tokens": len(prompt_T),
        "completion_tokens": completion,
        "total_tokens": len(prompt_T) + completion,
    }
