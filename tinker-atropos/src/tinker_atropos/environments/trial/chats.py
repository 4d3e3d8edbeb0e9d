"""The chats behind an environment's prompts.

Environments render prompts with the tokenizer of the model that they train, and ask for the tokens or text that follow.
A provider serves other models, with their own templates and their own form of tool calls: it must get the messages and
the tools, so a rendered prompt is mapped back to the chat that it was rendered from. Its answer returns as the text
that a model of the environment would have written, and calls of tools with it, in one format whatever the model is.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_requests import ChatRequest
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS
from tinker_atropos.chat.tool_formats.tool_format import ToolCall
from tinker_atropos.environments.session_environment import SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession

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

    def to_request(self) -> dict[str, Any]:
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

    def listen(self, env: SessionEnvironment[Any]) -> None:
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


def _on_the_wire(message: Message) -> dict[str, Any]:
    """As providers read it: templates want the arguments of calls as objects, the protocol wants them as text."""
    sent = {name: value for name, value in message.items() if name not in OURS}
    if message.get("tool_calls"):
        sent["tool_calls"] = [_call_on_the_wire(call) for call in message["tool_calls"]]
    return sent


def _call_on_the_wire(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict):  # some templates take it so, and what a provider says of it is told
        return dict(call)
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}
