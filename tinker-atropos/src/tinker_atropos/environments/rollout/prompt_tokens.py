"""Token ids of prompts that grow: what was tokenized for an earlier one is not tokenized again.

A special token such as `<|im_end|>` cuts a text before anything else is done with it, so that what follows it does not
change the ids before it: ids(text) = ids(before) + ids(from the token on). That is used only where it is certain. The
token must be found in each text that contains it, whatever surrounds it; other tokenizers, and tokenizers with code of
their own, tokenize every prompt as a whole.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import AddedToken, TokenizersBackend

Message = dict[str, Any]


class PromptTokens:
    """The prompts of one conversation, in their order."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._is_cuttable = _is_cuttable(tokenizer)
        self._mark: str | None = None
        self._before, self._ids_before = "", list[int]()

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt of the assistant's next turn, as the chat template renders it."""
        return str(self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False))

    def ids(self, messages: Sequence[Message], text: str) -> list[int]:
        """Those of the prompt; `text` is its text."""
        if not self._is_cuttable:
            return render(self._tokenizer, messages)
        if self._mark is None:
            return self._first_ids(text)
        if not (text.startswith(self._before) and text.startswith(self._mark, len(self._before))):
            self._before, self._ids_before = "", []
        cut = text.rfind(self._mark)
        if cut > len(self._before):
            self._ids_before = [*self._ids_before, *self._encoded(text[len(self._before) : cut])]
            self._before = text[:cut]
        return [*self._ids_before, *self._encoded(text[len(self._before) :])]

    def _first_ids(self, text: str) -> list[int]:
        ids = self._encoded(text)
        self._mark = _last_mark(self._tokenizer, ids)
        if self._mark is not None:
            self._before = text[: text.rfind(self._mark)]
            after = self._encoded(text[len(self._before) :])
            self._ids_before = ids[: len(ids) - len(after)]
        return ids

    def _encoded(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def render(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The ids of the prompt of the assistant's next turn."""
    ids: list[int] = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    return ids


def _is_cuttable(tokenizer: Any) -> bool:
    """Its ids are those that the library `tokenizers` gives for the text of a prompt, with special tokens cut out."""
    from transformers import PreTrainedTokenizerBase, TokenizersBackend  # late: torch must be hidden before

    kind = type(tokenizer)
    return (
        isinstance(tokenizer, TokenizersBackend)
        and kind.apply_chat_template is PreTrainedTokenizerBase.apply_chat_template
        and kind.__call__ is PreTrainedTokenizerBase.__call__
        and kind.encode is PreTrainedTokenizerBase.encode
        and kind._encode_plus is TokenizersBackend._encode_plus  # noqa: SLF001 -- where a subclass would change it
        and not tokenizer.split_special_tokens
    )


def _last_mark(tokenizer: "TokenizersBackend", ids: list[int]) -> str | None:
    """The last of the tokens that cut each text that they are in."""
    marks = _marks(tokenizer, len(tokenizer))
    return next((marks[token] for token in reversed(ids) if token in marks), None)


@lru_cache(maxsize=8)
def _marks(tokenizer: "TokenizersBackend", _size: int) -> dict[int, str]:
    """By id. `_size` grows when tokens are added."""
    added = tokenizer.added_tokens_decoder
    texts = [token.content for token in added.values()]
    return {number: token.content for number, token in added.items() if _cuts_always(token, texts)}


def _cuts_always(token: "AddedToken", added: Sequence[str]) -> bool:
    """It is looked for in the text as it is, takes nothing from what is before it, and no other token covers it or its
    beginning.
    """
    mark = token.content
    if not mark or mark != mark.strip() or token.normalized or token.lstrip or token.single_word:
        return False
    beginnings = tuple(mark[:length] for length in range(1, len(mark)))
    return not any(other.endswith(beginnings) or mark in other[1:] for other in added)
