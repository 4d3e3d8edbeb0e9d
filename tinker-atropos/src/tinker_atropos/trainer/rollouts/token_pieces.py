"""The text of each token, for people: joined, they are the text that the tokenizer makes of all of them at once."""

from collections.abc import Callable, Sequence

import numpy as np

from tinker_atropos.chat.tokenizer import Tokenizer

INCOMPLETE = "\ufffd"
MOST_JOINED = 8
"""Tokens that make up one character at most: an emoji of four code points has more, but each of those is complete."""

MOST_REMEMBERED = 2**16
"""Beginnings of characters: Chinese has three for each of 20,000. What a model samples at random is without end."""

TextOf = Callable[[list[int]], str]

ANCHOR = "a"
"""Decoded before each token: some tokenizers strip a space at the start of a text."""


class TokenPieces:
    """Remembers the text of each token that it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._anchor = tokenizer.encode(ANCHOR, add_special_tokens=False).tolist()
        self._before = self._text(self._anchor)
        self._pieces: dict[int, str] = {}
        self._characters: dict[tuple[int, ...], str] = {}

    def of(self, tokens: Sequence[int]) -> list[str]:
        """One text per token; that of a character of several tokens is with the first of them."""
        known = self._pieces
        try:
            pieces = [known[token] for token in tokens]
        except KeyError:
            known |= {token: self._after_anchor([token]) for token in set(tokens) - known.keys()}
            pieces = [known[token] for token in tokens]
        return _joined(pieces, tokens, self._together) if INCOMPLETE in "".join(pieces) else pieces

    def _together(self, tokens: list[int]) -> str:
        """The text of tokens that may be one character."""
        text = self._characters.get(key := tuple(tokens))
        if text is None:
            if len(self._characters) >= MOST_REMEMBERED:
                self._characters.clear()
            text = self._characters[key] = self._after_anchor(tokens)
        return text

    def _after_anchor(self, tokens: list[int]) -> str:
        text = self._text([*self._anchor, *tokens])
        return text.removeprefix(self._before) if text.startswith(self._before) else self._text(tokens)

    def _text(self, tokens: list[int]) -> str:
        return self._tokenizer.verbatim(np.array(tokens, np.int64))


def _joined(pieces: list[str], tokens: Sequence[int], text_of: TextOf) -> list[str]:
    """Tokens that are a part of a character each are decoded together."""
    joined = list(pieces)
    position = 0
    while position < len(joined):
        length, text = 1, joined[position]
        if INCOMPLETE in text:
            length, text = _complete(joined, tokens, position, text_of)
        joined[position : position + length] = [text, *[""] * (length - 1)]
        position += length
    return joined


def _complete(pieces: list[str], tokens: Sequence[int], start: int, text_of: TextOf) -> tuple[int, str]:
    """How many tokens from `start` give a whole text, and the text; 1 and its piece if none do."""
    for length in range(2, min(MOST_JOINED, len(tokens) - start) + 1):
        if INCOMPLETE not in pieces[start + length - 1]:
            break  # the rest of the character never came
        text = text_of(list(tokens[start : start + length]))
        if INCOMPLETE not in text:
            return length, text
    return 1, pieces[start]
