"""Texts of others in a prompt, without a model's control tokens.

Chat templates put a message's content into the text that is tokenized, and tokenizers recognize special tokens
anywhere in it: an observation with `<|im_end|>` would end its turn, and could go on in another role.
"""

import re
from typing import Any


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
