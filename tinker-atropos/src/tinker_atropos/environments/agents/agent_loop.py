"""The agent: it answers, its tools are called, and it is told what came of it, until it calls none.

It asks the policy, and every answer is recorded in the rollout's session. The trained policy is sampled by token ids.
Another model, of a provider that answers chats only, is asked in its place when data is made or a model is evaluated:
then the tokens of the record are those that the policy's tokenizer makes of the conversation, without logprobs, and
nobody trains on them.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import openai
from openai.types.chat import ChatCompletion

from rl_contract.scored_group import PROMPT_LOGPROB
from tinker_atropos.chat.openai_requests import ChatRequest
from tinker_atropos.chat.sampling import ContextOverflowError, GeneratedSamples, Sample
from tinker_atropos.environments.agents.agent_result import AgentResult, Message, ToolError
from tinker_atropos.environments.agents.sandbox_tools import SANDBOX_TOOLS
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.toolbox import ToolFailedError, installed
from tinker_atropos.environments.sessions.rollout_session import RolloutSession

SHOWN_ARGUMENTS: Final = 200


class ChatServer(Protocol):
    """Any of atroposlib's servers, or a rollout's session."""

    async def chat_completion(self, **request: Any) -> Any:
        """OpenAI's `ChatCompletion` for the fields of a request."""
        ...


class ToolSchemas(list[dict[str, Any]]):
    """Schemas in OpenAI's form, as programs pass them on, with the tools that they are of."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tool.schema for tool in tools.values())
        self.tools = tools


class AgentLoop:
    """The arguments are those of hermes-agent's loop; a temperature of None is the run's. `max_turns` bounds the
    agent's answers, and `max_tokens` each.

    `task_id` says whose sandbox tools work in. Without `ToolSchemas`, only the tools of sandboxes can be called.
    """

    def __init__(  # noqa: PLR0917 -- hermes-agent's signature
        self,
        server: ChatServer,
        tool_schemas: Sequence[dict[str, Any]],
        valid_tool_names: Collection[str],
        max_turns: int = 30,
        task_id: str | None = None,
        temperature: float | None = 1.0,
        max_tokens: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        known = tool_schemas.tools if isinstance(tool_schemas, ToolSchemas) else {t.name: t for t in SANDBOX_TOOLS}
        self.tools = {name: tool for name, tool in known.items() if name in valid_tool_names}
        self.server, self.max_turns, self.task_id = server, max_turns, task_id or str(uuid.uuid4())
        fields = {"tools": list(tool_schemas), "max_tokens": max_tokens, "extra_body": dict(extra_body or {})}
        shape = {} if temperature is None else {"temperature": temperature}
        self._request = {"n": 1, **shape, **{name: each for name, each in fields.items() if each}}

    async def run(self, messages: list[Message]) -> AgentResult:
        """Adds to `messages`. Raises what the server raises, and SandboxLostError: the rollout cannot go on."""
        result = AgentResult(messages)
        for turn in range(1, self.max_turns + 1):
            try:
                answer = await self._answer(messages)
            except _NoRoomError:
                result.stopped_by = "tokens"
                return result
            result.turns_used = turn
            result.reasoning_per_turn.append(_reasoning(answer))
            messages.append(_as_dict(answer))
            observations = await self._observations(answer, turn, result.tool_errors)
            messages.extend(observations)
            if not observations:
                result.finished_naturally = True
                return result
        result.stopped_by = "turns"
        return result

    async def _answer(self, messages: Sequence[Message]) -> Any:
        try:
            completion = await self.server.chat_completion(messages=list(messages), **self._request)
        except ContextOverflowError:
            raise _NoRoomError from None
        except openai.BadRequestError as error:
            if error.code == "context_length_exceeded":
                raise _NoRoomError from None
            raise
        return completion.choices[0].message

    async def _observations(self, answer: Any, turn: int, errors: list[ToolError]) -> list[Message]:
        """What the agent is told: the result of each call, all called at once; or why what it wrote is not a call."""
        calls = answer.tool_calls or ()
        malformed = getattr(answer, "tool_call_errors", None) or ()
        if not calls and not malformed:
            return []
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._called(call, turn, errors)) for call in calls]
        told = [task.result() for task in tasks]
        for reason in malformed:
            errors.append(ToolError(turn, "", "", reason, reason))
            told.append({"role": "user", "content": f"Error: a call could not be read: {reason}"})
        return told

    async def _called(self, call: Any, turn: int, errors: list[ToolError]) -> Message:
        name, arguments = call.function.name, call.function.arguments or "{}"
        try:
            told = await installed().call(self._tool(name), arguments, self.task_id)
        except ToolFailedError as error:
            told = f"Error: {error}"
            errors.append(ToolError(turn, name, arguments[:SHOWN_ARGUMENTS], str(error), told))
        return {"role": "tool", "tool_call_id": call.id, "name": name, "content": told}

    def _tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise ToolFailedError(f"there is no tool {name!r} (there are: {', '.join(self.tools) or 'none'})")
        return self.tools[name]


class _NoRoomError(Exception):
    """The conversation leaves no room for another answer."""


def _as_dict(answer: Any) -> Message:
    """The answer as it goes back with the next request."""
    message: Message = {"role": "assistant", "content": answer.content or ""}
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in answer.tool_calls
        ]
    reasoning = _reasoning(answer)
    return {**message, "reasoning_content": reasoning} if reasoning else message


def _reasoning(answer: Any) -> str | None:
    """Providers have three names for it."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := getattr(answer, name, None), str) and text:
            return text
    details = getattr(answer, "reasoning_details", None) or ()
    texts = (each.get("text") if isinstance(each, dict) else getattr(each, "text", None) for each in details)
    return next((text for text in texts if text), None)


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
