"""A server's texts in a prompt: limited in length, and without a model's control tokens.

Chat templates put a message's content into the text that is tokenized, and tokenizers recognize special tokens
anywhere in it: an observation with `<|im_end|>` would end its turn, and could go on in another role.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

NOTHING: Final = "(nothing was observed)"


class PromptText:
    """Makes untrusted texts fit for one tokenizer's prompts."""

    def __init__(self, tokenizer: Any) -> None:
        longest_first = sorted(control_strings(tokenizer), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def untrusted(self, text: str, limit: int) -> str:
        """At most `limit` characters and a note on what was left out."""
        left_out = len(text) - limit
        shown = f"{text[:limit]}\n[{left_out} more characters]" if left_out > 0 else text
        return self.defused(shown)

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


def observation_text(observation: Mapping[str, Any]) -> str:
    """The only text of an observation, or its JSON. What is empty of OpenEnv's own fields is left out."""
    shown = {name: value for name, value in observation.items() if name != "metadata" or value}
    match list(shown.values()):
        case []:
            return NOTHING
        case [str(text)] if text.strip():
            return text
        case _:
            return to_json(shown).decode()


def tool_text(observation: Mapping[str, Any]) -> str:
    """What a tool returned, as an MCP client shows it (`CallToolObservation` of `mcp_types.py`)."""
    if "tool_name" not in observation:
        return observation_text(observation)
    error, result = observation.get("error"), observation.get("result")
    if error:
        return f"The tool failed: {error.get('message') if isinstance(error, Mapping) else error}"
    content = result.get("content") if isinstance(result, Mapping) else None
    texts = _texts(content) if isinstance(content, Sequence) else []
    return "\n".join(texts) or to_json(result).decode()


def _texts(content: Sequence[Any]) -> list[str]:
    return [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
