"""From a chat request to its answer, whoever asks: a program over HTTP, or an environment in the same process.

What differs between the trainer's own server and a rollout's session (whose prompts continue the tokens of its earlier
turns, and which records them) is the `Caller`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_answers import chat_answer
from tinker_atropos.chat.openai_requests import ChatRequest, InferenceRequest
from tinker_atropos.chat.sampling import GeneratedSamples, SampleSource

Json = dict[str, Any]


class Caller(Protocol):
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


async def answer_chat(caller: Caller, body: ChatRequest, renderer: ChatRenderer, default_max_tokens: int) -> Json:
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
    caller: Caller, body: InferenceRequest, prompt_T: Ints, max_tokens: int, renderer: ChatRenderer
) -> GeneratedSamples:
    """What the caller's source makes of a prompt, as the request wants it."""
    tokenizer = renderer.tokenizer
    settings = body.settings(max_tokens, tokenizer.eos, tokenizer.eos_id)
    return await caller.source.generate(prompt_T, body.n, settings, body.rl_purpose, body.evaluated_step)
