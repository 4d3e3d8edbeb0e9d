"""The tokenizer, for text in and out. Loaded without torch, and without a network if its files are local.

Chat templates put a message's content into the text that is tokenized, and tokenizers recognize special tokens
anywhere in it: an observation with `<|im_end|>` would end its turn, and could go on in another role. So texts of others
lose a model's control tokens (`ControlText`).
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from jinja2 import TemplateError

from rl_contract.bundled import BUNDLED, resolve_tokenizer
from tinker_atropos.chat.model_config import read_model_config
from tinker_atropos.chat.sampling import Ints
from tinker_atropos.errors import ConfigError


class ControlText:
    """What one tokenizer takes for control."""

    def __init__(self, tokenizer: Any) -> None:
        longest_first = sorted(control_strings(tokenizer), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def defused(self, text: str) -> str:
        """The text with a space in each control string; in the rare case that this makes another one, without it."""
        if self._control is None:
            return text
        text = self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
        while self._control.search(text):
            text = self._control.sub("", text)
        return text


def control_strings(tokenizer: Any) -> set[str]:
    """What the tokenizer recognizes in any text: special tokens, and other added tokens that its chat template writes,
    such as `<tool_response>`. Added tokens may also be plain words or spaces; those stay.
    """
    template = str(tokenizer.chat_template or "")
    added = tokenizer.added_tokens_decoder.values()
    written = {str(token) for token in added if not token.special and str(token) in template}
    special = {str(token) for token in added if token.special} | set(tokenizer.all_special_tokens)
    return {text for text in special if text} | {text for text in written if re.search(r"[^\w\s]", text)}


Message = dict[str, Any]


class ChatError(ValueError):
    """Messages that cannot be rendered; the message names the field."""


VARIABLES = {"documents"}
"""Parameters of `apply_chat_template` that are only passed through to the template."""


class Tokenizer:
    """A Hugging Face tokenizer. Token ids keep special tokens; texts are decoded without them unless requested."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError if there is no such tokenizer, or it cannot be fetched."""
        self._tokenizer = _loaded(name)

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """One that is loaded already."""
        made = cls.__new__(cls)
        made._tokenizer = tokenizer  # noqa: SLF001 -- of its own class
        return made

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
        config = read_model_config(self._tokenizer.name_or_path)
        return max(len(self._tokenizer), config.vocabulary if config else 0)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that stand for no text, such as the end of a turn."""
        return frozenset(self._tokenizer.all_special_ids)

    @cached_property
    def _control(self) -> ControlText:
        return ControlText(self._tokenizer)

    def defused(self, text: str) -> str:
        """A text of others, in which nothing controls the model."""
        return self._control.defused(text)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Ints:
        """`add_special_tokens`: those that begin and end a whole text, where the tokenizer has such."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=add_special_tokens), np.int64)

    def decode(self, tokens_T: Ints, *, skip_special_tokens: bool = True) -> str:
        return str(self._tokenizer.decode(tokens_T.tolist(), skip_special_tokens=skip_special_tokens))

    def verbatim(self, tokens_T: Ints) -> str:
        """The text with its special tokens, as a chat template would write it."""
        return str(
            self._tokenizer.decode(tokens_T.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def decode_each(self, tokens_T: Ints) -> list[str]:
        return [str(self._tokenizer.decode([token])) for token in tokens_T.tolist()]

    def render_template(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], template_kwargs: Mapping[str, Any]
    ) -> str:
        """The text that the tokenizer's chat template makes of the messages, up to where the assistant's turn begins.

        Raises ChatError if it cannot render them.
        """
        if template_kwargs:
            _check_variables(template_kwargs)
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, add_generation_prompt=True, tokenize=False, **template_kwargs
            )
        except (TemplateError, ValueError, TypeError, KeyError) as error:  # what templates and their input can raise
            raise ChatError(f"messages cannot be rendered by the tokenizer's chat template: {error}") from error
        return text


def _loaded(name: str) -> Any:
    try:
        return _tokenizer_class(name).from_pretrained(resolve_tokenizer(name))
    except (OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConfigError(f"env.tokenizer_name is {name!r}, which cannot be loaded: {first_line}") from error


def _tokenizer_class(name: str) -> Any:
    """AutoTokenizer reads the source of every model that transformers knows to find out what the bundled one needs."""
    if name == BUNDLED:
        from transformers import TokenizersBackend

        return TokenizersBackend
    from transformers import AutoTokenizer

    return AutoTokenizer


def _check_variables(template_kwargs: Mapping[str, object]) -> None:
    """Refuse transformers' own parameters: a client's template would run in this process, which has the key."""
    from transformers import PreTrainedTokenizerBase

    taken = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters.keys() - VARIABLES
    for name in template_kwargs:
        if name in taken:
            raise ChatError(
                f"chat_template_kwargs.{name} is not a variable of the tokenizer's chat template: leave it out"
            )
