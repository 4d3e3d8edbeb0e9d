"""The policy as an agent's loop asks it, and every answer recorded in the rollout's session.

The trained policy is sampled by token ids. Another model, of a provider that answers chats only, is asked in its place
when data is made or a model is evaluated: then the tokens of the record are those that the policy's tokenizer makes of
the conversation, without logprobs, and nobody trains on them.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import numpy as np
from openai.types.chat import ChatCompletion

from rl_contract.scored_group import PROMPT_LOGPROB
from tinker_atropos.chat.openai_requests import ChatRequest
from tinker_atropos.chat.sampling import GeneratedSamples, Sample
from tinker_atropos.environments.sessions.rollout_session import RolloutSession

MALFORMED: Final = "malformed_arguments"


class SessionChat:
    """The policy that is trained."""

    def __init__(self, session: RolloutSession) -> None:
        self._session = session

    async def chat_completion(self, **request: Any) -> ChatCompletion:
        return ChatCompletion.model_validate(await self._session.chat(_body(request)))


class ProviderChat:
    """A model that only answers chats. `ask` is atroposlib's `chat_completion`."""

    def __init__(self, session: RolloutSession, ask: Callable[..., Awaitable[ChatCompletion]]) -> None:
        self._session, self._ask = session, ask

    async def chat_completion(self, **request: Any) -> ChatCompletion:
        request["messages"] = [_readable(message) for message in request["messages"]]
        completion = await self._ask(**request)
        message = _readable(completion.choices[0].message.model_dump(exclude_none=True))
        prompt_T = self._session.chat_prompt(_body(request), "")
        self._session.was_answered(prompt_T, GeneratedSamples([self._rebuilt(message)]), [message])
        return completion

    def _rebuilt(self, message: dict[str, Any]) -> Sample:
        renderer = self._session.renderer
        written = renderer.written(message) + (renderer.tokenizer.eos or "")
        tokens_T = renderer.tokenizer.encode(written, add_special_tokens=False)
        return Sample(tokens_T, np.full(len(tokens_T), PROMPT_LOGPROB), "stop")


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """Calls whose arguments are not a JSON object (most often cut off) say so in one: chat templates and most providers
    fail at what they cannot read, and the agent is to go on with its error.
    """
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_readable_call(call) for call in message["tool_calls"]]}


def _readable_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    given = function.get("arguments") or "{}"
    try:
        is_object = isinstance(json.loads(given), dict)
    except (ValueError, RecursionError):  # no JSON, or nested without end
        is_object = False
    arguments = given if is_object else json.dumps({MALFORMED: given}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _body(request: dict[str, Any]) -> ChatRequest:
    fields = {name: value for name, value in request.items() if name != "extra_body"}
    return ChatRequest.model_validate({**(request.get("extra_body") or {}), **fields})
