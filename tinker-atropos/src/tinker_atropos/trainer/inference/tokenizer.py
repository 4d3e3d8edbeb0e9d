"""The tokenizer, for text in and out. Loaded without torch, and without a network if its files are local.

Chat messages come in OpenAI's form and are converted to what Hugging Face chat templates expect.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from jinja2 import TemplateError

from tinker_atropos.bundled import BUNDLED, resolve_tokenizer
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.data.groups import Ints

Message = dict[str, Any]


class ChatError(ValueError):
    """Messages that cannot be rendered; the message names the field."""


def template_messages(messages: Sequence[Message]) -> list[Message]:
    """Text contents as one string, and tool call arguments as objects: a template would encode them as JSON twice.

    Raises ChatError naming the message.
    """
    return [_template_message(f"messages.{index}", message) for index, message in enumerate(messages)]


def _template_message(where: str, message: Message) -> Message:
    if not isinstance(message.get("role"), str):
        raise ChatError(f"{where}.role is {message.get('role')!r}; it must be system, user, assistant or tool")
    rendered = {**message, "content": _text(f"{where}.content", message.get("content"))}
    if message.get("tool_calls"):
        rendered["tool_calls"] = [
            _tool_call(f"{where}.tool_calls.{index}", call) for index, call in enumerate(message["tool_calls"])
        ]
    return rendered


def _text(where: str, content: Any) -> str:
    """The text of a message: none if it only calls tools; the parts of a content must all be text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    for index, part in enumerate(parts):
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ChatError(f"{where}.{index} is not a text part; only text can be sampled from")
    return "".join(part["text"] for part in parts)


def _tool_call(where: str, call: Any) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise ChatError(f"{where}.function is missing; a tool call has a function with a name and arguments")
    return {**call, "function": {**function, "arguments": _arguments(where, function.get("arguments"))}}


def _arguments(where: str, arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments if arguments is not None else {}
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise ChatError(f"{where}.function.arguments is not JSON: {error}") from None


NO_KWARGS: Mapping[str, Any] = {}
VARIABLES = {"documents"}
"""Parameters of `apply_chat_template` that are only passed through to the template."""


class Tokenizer:
    """A Hugging Face tokenizer. Token ids keep special tokens; texts are decoded without them unless requested."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError if there is no such tokenizer, or it cannot be fetched."""
        try:
            self._tokenizer: Any = _tokenizer_class(name).from_pretrained(resolve_tokenizer(name))
        except (OSError, ValueError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise ConfigError(f"env.tokenizer_name is {name!r}, which cannot be loaded: {first_line}") from error

    @property
    def eos(self) -> str | None:
        token: str | None = self._tokenizer.eos_token
        return token

    @property
    def eos_id(self) -> int | None:
        token: int | None = self._tokenizer.eos_token_id
        return token

    @property
    def vocabulary(self) -> int:
        """Number of the model's token ids: its embedding may be longer than the tokenizer's list."""
        return max(len(self._tokenizer), _embedding_size(self._tokenizer.name_or_path))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text, such as the end of a turn."""
        return frozenset(self._tokenizer.all_special_ids)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Ints:
        """`add_special_tokens`: those that begin and end a whole text, where the tokenizer has such."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=add_special_tokens), np.int64)

    def decode(self, tokens_T: Ints, *, skip_special_tokens: bool = True) -> str:
        return str(self._tokenizer.decode(tokens_T.tolist(), skip_special_tokens=skip_special_tokens))

    def decode_each(self, tokens_T: Ints) -> list[str]:
        return [str(self._tokenizer.decode([token])) for token in tokens_T.tolist()]

    def render_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> Ints:
        """The prompt of the assistant's next turn, from the tokenizer's chat template.

        Raises ChatError if the template cannot render the messages, or would leave out tools or their calls.
        """
        _check_variables(template_kwargs)
        wanted = template_messages(messages)
        rendered = self._render(wanted, tools, template_kwargs)
        if tools and rendered == self._render(wanted, (), template_kwargs):
            raise ChatError("tools: the tokenizer's chat template does not show tools to the model")
        spoken = [{name: value for name, value in message.items() if name != "tool_calls"} for message in wanted]
        if spoken != wanted and rendered == self._render(spoken, tools, template_kwargs):
            raise ChatError("tool_calls: the tokenizer's chat template does not show tool calls to the model")
        return np.array(rendered, np.int64)

    def _render(
        self, messages: list[Message], tools: Sequence[Mapping[str, Any]], template_kwargs: Mapping[str, Any]
    ) -> list[int]:
        try:
            ids: list[int] = self._tokenizer.apply_chat_template(
                messages, tools=list(tools) or None, add_generation_prompt=True, return_dict=False, **template_kwargs
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:  # what templates and their input can raise
            raise ChatError(f"messages cannot be rendered by the tokenizer's chat template: {error}") from error
        return ids


def _tokenizer_class(name: str) -> Any:
    """AutoTokenizer reads the source of every model that transformers knows to find out what the bundled one needs."""
    if name == BUNDLED:
        from transformers import TokenizersBackend

        return TokenizersBackend
    from transformers import AutoTokenizer

    return AutoTokenizer


def _embedding_size(folder: str) -> int:
    """The number of token ids that the model's config names; 0: there is only a tokenizer."""
    if folder == resolve_tokenizer(BUNDLED):
        return int(orjson.loads(Path(folder, "config.json").read_bytes())["vocab_size"])
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError):
        return 0
    return int(getattr(config.get_text_config(), "vocab_size", 0))


def _check_variables(template_kwargs: Mapping[str, Any]) -> None:
    """Refuse transformers' own parameters: a client's template would run in this process, which has the key."""
    from transformers import PreTrainedTokenizerBase

    taken = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys() - VARIABLES
    for name in template_kwargs:
        if name in taken:
            raise ChatError(
                f"chat_template_kwargs.{name} is not a variable of the tokenizer's chat template: leave it out"
            )
