"""From a chat request to its finished answer in OpenAI's shapes, whoever asks: a program over HTTP, or an environment
in the same process. What differs between the trainer's own server and a rollout's session (whose prompts continue the
tokens of its earlier turns, and which records them) is the `ChatCaller`.

Texts end before the stop that ended them, as the protocols specify. Token ids and logprobs cover everything that was
sampled, including the stop: that is what is trained.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_requests import ChatRequest, CompletionRequest, InferenceRequest, OpenAIRequest
from tinker_atropos.chat.sampling import GeneratedSamples, Ints, Sample, SampleSource
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.chat.tool_formats.tool_format import ParsedAnswer, ToolCall


@dataclass(frozen=True, slots=True)
class Written:
    """A sample and its text. `matched` is the stop that ended it, a string or a token id; None at the length limit."""

    sample: Sample
    text: str
    matched: str | int | None


def write(sample: Sample, request: InferenceRequest, tokenizer: Tokenizer, *, is_markup: bool = False) -> Written:
    """`is_markup`: special tokens belong to the text, such as those that begin a tool call."""
    tokens_T, skip = sample.tokens_T, request.skip_special_tokens and not is_markup
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


def completion_answer(
    body: CompletionRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer
) -> dict[str, Any]:
    written = [write(sample, body, tokenizer) for sample in generation.samples]
    choices = [
        {
            "index": index,
            "text": each.text,
            "logprobs": _completion_logprobs(each.sample, tokenizer) if body.wants_logprobs else None,
            **_ending(each, tokenizer, each.sample.stop_reason),
        }
        for index, each in enumerate(written)
    ]
    answer = {**_head("cmpl", "text_completion", body.model), "choices": choices}
    return _with_tokens(answer, body, generation, prompt_T)


def _completion_logprobs(sample: Sample, tokenizer: Tokenizer) -> dict[str, Any]:
    tokens = tokenizer.decode_each(sample.tokens_T)
    offsets = np.cumsum([0, *map(len, tokens)])[:-1].tolist()
    logprobs = sample.logprobs_T.tolist()
    return {"tokens": tokens, "token_logprobs": logprobs, "text_offset": offsets, "top_logprobs": None}


def chat_answer(
    body: ChatRequest, generation: GeneratedSamples, prompt_T: Ints, renderer: ChatRenderer, opening: str = ""
) -> dict[str, Any]:
    """`opening`: how each answer begins, where the prompt ends with it (a required call)."""
    choices = []
    for index, sample in enumerate(generation.samples):
        written = write(sample, body, renderer.tokenizer, is_markup=bool(body.shown_tools))
        parsed = _parsed(body, opening + written.text, renderer)
        ended = "tool_calls" if parsed.calls and sample.stop_reason == "stop" else sample.stop_reason
        choices.append(
            {
                "index": index,
                "message": _message(parsed),
                "logprobs": {"content": _chat_logprobs(sample, renderer.tokenizer)} if body.logprobs else None,
                **_ending(written, renderer.tokenizer, ended),
            }
        )
    answer = {**_head("chatcmpl", "chat.completion", body.model), "choices": choices}
    return _with_tokens(answer, body, generation, prompt_T)


def _parsed(body: ChatRequest, text: str, renderer: ChatRenderer) -> ParsedAnswer:
    if not body.shown_tools:
        return ParsedAnswer(text)
    parsed = renderer.tool_format.parse(text, body.shown_tools)
    return parsed if body.parallel_tool_calls else replace(parsed, calls=parsed.calls[:1])


def _message(parsed: ParsedAnswer) -> dict[str, Any]:
    """`tool_call_errors` is ours: why what looks like a call is text."""
    message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
    if parsed.calls:
        message |= {"content": parsed.content or None, "tool_calls": [_call(call) for call in parsed.calls]}
    return message | ({"tool_call_errors": list(parsed.errors)} if parsed.errors else {})


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _ending(written: Written, tokenizer: Tokenizer, finish_reason: str) -> dict[str, Any]:
    """`stop_reason` is vLLM's: what ended the answer, if it was not the end of the turn."""
    matched = None if written.matched == tokenizer.eos_id else written.matched
    return {"finish_reason": finish_reason, "stop_reason": matched}


def _chat_logprobs(sample: Sample, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logprob in zip(tokenizer.decode_each(sample.tokens_T), sample.logprobs_T.tolist(), strict=True)
    ]


def ping_answer(body: CompletionRequest | ChatRequest) -> dict[str, Any]:
    """The answer to a health ping, without a backend call, which would be billed once a second."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}
    if isinstance(body, ChatRequest):
        choice["message"] = {"role": "assistant", "content": ""}
        return {**_head("chatcmpl", "chat.completion", body.model), "choices": [choice], "usage": usage}
    return {**_head("cmpl", "text_completion", body.model), "choices": [{**choice, "text": ""}], "usage": usage}


def _with_tokens(
    answer: dict[str, Any], body: OpenAIRequest, generation: GeneratedSamples, prompt_T: Ints
) -> dict[str, Any]:
    """The usage, and the token ids in the names and places of vLLM, if they were asked for."""
    prompt, completion = len(prompt_T), sum(len(sample.tokens_T) for sample in generation.samples)
    answer["usage"] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if body.return_token_ids:
        answer["prompt_token_ids"] = prompt_T.tolist()
        for choice, sample in zip(answer["choices"], generation.samples, strict=True):
            choice["token_ids"] = sample.tokens_T.tolist()
    return answer


def _head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


Json = dict[str, Any]


class ChatCaller(Protocol):
    """The rollout that a request belongs to."""

    @property
    def source(self) -> SampleSource:
        """Where its answers are sampled."""
        ...

    def chat_prompt(self, body: ChatRequest, opening: str) -> Ints:
        """The token ids from which the answer to a chat is sampled; `opening` is how the answer begins.

        Raises ChatError if the messages cannot be rendered.
        """
        ...

    def was_answered(self, prompt_T: Ints, generation: GeneratedSamples, messages: Sequence[Json]) -> None:
        """Samples of a prompt are sent as these messages; there are none for plain text."""
        ...


async def answer_chat(caller: ChatCaller, body: ChatRequest, renderer: ChatRenderer, default_max_tokens: int) -> Json:
    """A `chat.completion`. `default_max_tokens` bounds an answer whose request names no limit.

    Raises ChatError for messages that cannot be rendered, and what the caller's source raises.
    """
    opening = renderer.tool_format.opening(body.required_tool) if body.requires_call else ""
    prompt_T = caller.chat_prompt(body, opening)
    generation = await sampled(caller, body, prompt_T, body.token_limit or default_max_tokens, renderer)
    answer = chat_answer(body, generation, prompt_T, renderer, opening)
    caller.was_answered(prompt_T, generation, [choice["message"] for choice in answer["choices"]])
    return answer


async def sampled(
    caller: ChatCaller, body: InferenceRequest, prompt_T: Ints, max_tokens: int, renderer: ChatRenderer
) -> GeneratedSamples:
    """What the caller's source makes of a prompt, as the request wants it."""
    tokenizer = renderer.tokenizer
    settings = body.settings(max_tokens, tokenizer.eos, tokenizer.eos_id)
    return await caller.source.generate(prompt_T, body.n, settings, body.rl_purpose, body.evaluated_step)
