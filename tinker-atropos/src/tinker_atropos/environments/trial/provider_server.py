"""The provider, in place of the run's own inference server: it is asked for the chats behind an environment's prompts.

Environments render prompts with the tokenizer of the model that they train, and ask for the tokens or text that follow.
A provider serves other models, with their own templates and their own form of tool calls: it must get the messages and
the tools, so a rendered prompt is mapped back to the chat that it was rendered from. Its answer returns as the text
that a model of the environment would have written, and calls of tools with it, in one format whatever the model is.
"""

import asyncio
import inspect
import json
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import openai
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer
from openai.types.chat.chat_completion import ChatCompletion
from openai.types.completion import Completion
from openai.types.completion_choice import CompletionChoice
from tenacity import stop_after_attempt

from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_requests import ChatRequest
from tinker_atropos.chat.sampling import Ints
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS
from tinker_atropos.chat.tool_formats.tool_format import ToolCall
from tinker_atropos.environments.session_environment import SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.environments.trial.provider import Wishes

Message = Mapping[str, Any]

CALLS: Final = TOOL_FORMATS["hermes"]
"""JSON between marks: arguments come out of it as they went in, which tags of their own do not promise."""

MAX_CHATS: Final = 10_000

OURS: Final = frozenset({"tool_call_errors"})
"""Fields of our endpoint's messages, which programs send back to it, and providers may refuse."""

TOOL_FIELDS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})


@dataclass(frozen=True, slots=True)
class Chat:
    """`fields` are those of the request about tools. `opening`: how the answer begins, if the prompt ends with it."""

    messages: Sequence[Message]
    fields: Mapping[str, Any] = field(default_factory=dict)
    opening: str = ""

    def to_request(self) -> dict[str, object]:
        return {"messages": [_on_the_wire(message) for message in self.messages], **self.fields}

    def text_of(self, message: Any) -> str:
        """What follows the prompt, from a provider's answer. Arguments that are not JSON stay as they are."""
        calls = [ToolCall(call.function.name, call.function.arguments or "{}") for call in message.tool_calls or ()]
        if not calls:
            return str(message.content or "")
        written = CALLS.render_calls(calls)
        if self.opening:  # a call was required, and nothing else can follow
            return written.removeprefix(self.opening)
        return "\n".join(filter(None, (str(message.content or ""), written)))


class Chats:
    """Records what an environment's tokenizer renders: its `apply_chat_template` is replaced on the instance."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._render = tokenizer.apply_chat_template
        self._chats: OrderedDict[str, Chat] = OrderedDict()
        tokenizer.apply_chat_template = self._rendered

    def of_prompt(self, text: str) -> Chat | None:
        """The chat that was rendered as this text; None if none was."""
        return self._chats.get(text)

    def listen(self, env: SessionEnvironment[object]) -> None:
        """Record what programs ask through their sessions as they ask, not as a session renders it: there tools and
        calls may be text. Both methods are replaced on their instances.
        """
        begin = env.begin_session

        async def begin_session(split: str) -> RolloutSession:
            session = await begin(split)
            session.chat_prompt = partial(self._asked, session.chat_prompt)  # type: ignore[method-assign]
            return session

        env.begin_session = begin_session  # type: ignore[method-assign]
        env.renderer = ChatRenderer(Tokenizer.of(env.tokenizer), CALLS)

    def _asked(self, render: Callable[[ChatRequest, str], Ints], body: ChatRequest, opening: str) -> Ints:
        prompt_T = render(body, opening)
        fields = body.model_dump(include={*(TOOL_FIELDS & body.model_fields_set)}) if body.tools else {}
        self._remember(self._decoded(prompt_T.tolist()), Chat(body.messages, fields, opening))
        return prompt_T

    def _rendered(self, conversation: Any, tools: Any = None, *args: Any, **kwargs: Any) -> Any:
        answer = self._render(conversation, tools, *args, **kwargs)
        text = answer if isinstance(answer, str) else self._decoded(answer)
        if isinstance(conversation, Sequence):
            self._remember(text, Chat([*conversation], {"tools": [*tools]} if tools else {}))
        return answer

    def _remember(self, text: str | None, chat: Chat) -> None:
        if text is not None:
            self._chats[text] = chat
            while len(self._chats) > MAX_CHATS:
                self._chats.popitem(last=False)

    def _decoded(self, answer: Any) -> str | None:
        """The text of a list of token ids; batches, mappings and tensors are not used as prompts here."""
        if not (isinstance(answer, list) and all(isinstance(token, int) for token in answer)):
            return None
        return str(self._tokenizer.decode(answer, skip_special_tokens=False))


def _on_the_wire(message: Message) -> dict[str, object]:
    """As providers read it: templates want the arguments of calls as objects, the protocol wants them as text."""
    sent = {name: value for name, value in message.items() if name not in OURS}
    if message.get("tool_calls"):
        sent["tool_calls"] = [_call_on_the_wire(call) for call in message["tool_calls"]]
    return sent


def _call_on_the_wire(call: Mapping[str, object]) -> dict[str, object]:
    function = call.get("function")
    if not isinstance(function, dict):  # some templates take it so, and what a provider says of it is told
        return dict(call)
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


REQUESTS_AT_ONCE = 16
RETRIES = 3
"""The openai client's: of 408, 409, 429, 5xx and lost connections, after 0.5 s and more, or as `Retry-After` says."""

MAX_SAID = 300
"""Characters kept of a provider's error message."""


class ProviderError(Exception):
    """The provider answered with something that is not a completion, or not in time."""


@dataclass(slots=True)
class Traffic:
    """What the provider answered so far, and its error if the last answer was one. `offers`: requests with tools."""

    answers: int = 0
    tool_calls: int = 0
    offers: int = 0
    error: Exception | None = None


class ProviderServer(OpenAIServer):  # type: ignore[misc]  # atroposlib ships no types
    """One of atroposlib's servers. Each completion is a separate request, because most providers ignore `n`; prompts
    that were rendered for the trained model are sent as the messages that they were rendered from.
    """

    def __init__(self, config: Any, tokenizer: Any, wishes: Wishes, request_seconds: float) -> None:
        super().__init__(config)
        self.openai: openai.AsyncClient = openai.AsyncClient(
            api_key=config.api_key,
            base_url=config.base_url,
            max_retries=RETRIES,
            timeout=request_seconds,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),  # the key is for this address
        )
        self._tokenizer = tokenizer
        self.chats = Chats(tokenizer)
        self.traffic = Traffic()
        self._wishes = wishes.to_request()
        self._request_seconds = request_seconds
        self._free = asyncio.Semaphore(REQUESTS_AT_ONCE)

    # The three methods that atroposlib calls; none of them calls another, because each is counted separately.

    async def _chat_completion_wrapper(self, **kwargs: Any) -> ChatCompletion:
        return await self._answer(kwargs)

    async def _completion_wrapper(self, **kwargs: Any) -> Completion:
        return await self._continue(kwargs)

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> tuple[Any, Any, Any, Any]:
        """Tokens of the provider's text in the environment's own vocabulary. The logprobs are unknown: 1.0 is Atropos'
        value for positions without one.
        """
        ids = kwargs.pop("input_ids", None)
        if ids is not None:
            kwargs["prompt"] = self._tokenizer.decode(ids, skip_special_tokens=False)
        answer = await self._continue(kwargs)
        outputs = [self._tokens(choice) for choice in answer.choices]
        reasons = [choice.finish_reason for choice in answer.choices]
        return ids, outputs, [[1.0] * len(tokens) for tokens in outputs], reasons

    async def _answer(self, request: dict[str, Any]) -> ChatCompletion:
        answer: ChatCompletion = await self._ask_each(self.openai.chat.completions.create, request)
        for choice in answer.choices:
            choice.message.content = choice.message.content or ""  # a refusal, or only thinking
            calls = choice.message.tool_calls or ()
            self.traffic.tool_calls += len(calls)
            for call in calls:
                call.id = call.id or f"call_{uuid.uuid4().hex[:24]}"  # some providers give none, and want one back
        return answer

    async def _continue(self, request: dict[str, Any]) -> Completion:
        """What follows a text; if it was rendered from messages, what the provider answers to them."""
        chat = self.chats.of_prompt(request["prompt"])
        if chat is None:
            answer: Completion = await self._ask_each(self.openai.completions.create, request)
            return answer
        others = {name: value for name, value in request.items() if name != "prompt"}
        return _as_text(await self._answer({**chat.to_request(), **others}), chat)

    def _tokens(self, choice: Any) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(choice.text or "", add_special_tokens=False)
        ended = choice.finish_reason == "stop" and self._tokenizer.eos_token_id is not None
        return [*tokens, self._tokenizer.eos_token_id] if ended else tokens

    async def _ask_each(self, create: Any, kwargs: dict[str, Any]) -> Any:
        """As many requests as needed, as one answer. Raises the first error, once all are answered."""
        n = kwargs.pop("n", None) or 1
        request = {**kwargs, **self._wishes}
        if request.get("stop") is not None:
            request["stop"] = self._as_texts(request["stop"])
        answers: list[Any] = await asyncio.gather(
            *(self._ask(create, request) for _ in range(n)), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        first, *others = answers
        for other in others:
            first.choices.extend(other.choices)
        return first

    async def _ask(self, create: Any, request: Mapping[str, Any]) -> Any:
        self.traffic.offers += bool(request.get("tools"))
        async with self._free:
            try:
                answer = await self._answered(create(**_known_fields(create, request)))
            except (openai.APIError, ProviderError) as error:  # whatever an environment or a program makes of it
                self.traffic.error = error
                raise
        self.traffic.answers += 1
        self.traffic.error = None
        return answer

    async def _answered(self, request: Awaitable[object]) -> object:
        """Raises ProviderError for what is not a completion, and if there is none in time, retries included."""
        try:
            async with asyncio.timeout(self._request_seconds):
                answer = await request
        except TimeoutError:
            raise ProviderError("the provider did not answer in time") from None
        except (json.JSONDecodeError, openai.APIResponseValidationError) as error:
            raise ProviderError(f"the provider's answer is not JSON: {str(error)[:MAX_SAID]}") from error
        if not getattr(answer, "choices", None):
            raise ProviderError(f"the provider's answer is not a completion{_said(answer)}")
        return answer

    def _as_texts(self, stop: Any) -> Any:
        """Stops for a trained model may be token ids; a provider knows only strings."""
        words = stop if isinstance(stop, list) else [stop]
        return [self._tokenizer.decode([word]) if isinstance(word, int) else word for word in words]


def _known_fields(create: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """The client refuses fields that are not OpenAI's, such as `top_k`, unless they are in `extra_body`."""
    known = inspect.signature(create).parameters
    named = {name: value for name, value in request.items() if name in known}
    others = {name: value for name, value in request.items() if name not in known}
    return named | ({"extra_body": {**others, **(named.get("extra_body") or {})}} if others else {})


def connect(env: Any, wishes: Wishes, request_seconds: float) -> None:
    """Put the provider in the place of the policy's server. Servers of other models stay as the author has them."""
    server = ProviderServer(env.server.servers[0].config, env.tokenizer, wishes, request_seconds)
    env.server.servers[0] = server
    if isinstance(env, SessionEnvironment) and env.serves_sessions:
        server.chats.listen(env)


def retry_once() -> None:
    """Leave retries to the openai client: atroposlib would retry everything nine times, even with a wrong key."""
    for method in vars(APIServer).values():
        if hasattr(method, "retry"):
            method.retry.stop = stop_after_attempt(1)
            method.retry.reraise = True


_REASONS: Mapping[str, Literal["stop", "length", "content_filter"]] = {
    "length": "length",
    "content_filter": "content_filter",
}
"""The finish reasons of a chat that a text completion has, too."""


def _as_text(answer: ChatCompletion, chat: Chat) -> Completion:
    choices = [
        CompletionChoice(
            index=index, text=chat.text_of(choice.message), finish_reason=_REASONS.get(choice.finish_reason, "stop")
        )
        for index, choice in enumerate(answer.choices)
    ]
    return Completion.model_construct(
        id=answer.id,
        object="text_completion",
        created=answer.created,
        model=answer.model,
        choices=choices,
        usage=answer.usage,
    )


def _said(answer: object) -> str:
    """The message of an error in OpenAI's form: some providers report it with status 200."""
    return message_of((getattr(answer, "model_extra", None) or {}).get("error"))


def message_of(error: object) -> str:
    """What an error in OpenAI's form says, as the end of a sentence. Nothing else of a body is repeated: it may be
    another service's.
    """
    said = error.get("message") if isinstance(error, dict) else None
    return f": {said[:MAX_SAID]}" if isinstance(said, str) else ""
