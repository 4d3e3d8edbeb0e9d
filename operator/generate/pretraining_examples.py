"""Examples to learn from: what is asked, and what the model says, rightly or with a plausible mistake.

A mistake is something that the model can do better, so that RL has something to correct.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS
from tinker_atropos.chat.tool_formats.tool_format import ToolCall
from tinker_atropos.environments.base import Message
from tinker_atropos.environments.bundled import arithmetic

TOOL_FORMAT = TOOL_FORMATS["hermes"]
"""Of the bundled model."""

MISREAD_RESULTS = 1 / 3
"""Of the wrongly calculated products, how many are calculated right and repeated wrongly."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says, in pieces that are tokenized one by one, and the message that follows it."""

    pieces: Sequence[str]
    reply: Message | None = None


class Example(Protocol):
    """A prompt, and the conversation that it begins."""

    tools: ClassVar[Sequence[dict[str, Any]]]

    def messages(self) -> list[Message]:
        """The prompt."""

    def right(self) -> list[Turn]: ...

    def wrong(self, rng: random.Random) -> list[Turn]: ...


@dataclass(frozen=True, slots=True)
class PretrainingTask:
    """Examples of two disjoint sets of questions."""

    name: str
    pretraining: Sequence[Example]
    held_out: Sequence[Example]


@dataclass(frozen=True, slots=True)
class SingleAnswer:
    """A question and its right answer; tags may stand around the answer, and a mistake leaves them alone."""

    tools: ClassVar[Sequence[dict[str, Any]]] = ()

    question: str
    answer: str
    system_prompt: str = ""
    tags: tuple[str, str] = ("", "")

    def messages(self) -> list[Message]:
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        return [*system, {"role": "user", "content": self.question}]

    def right(self) -> list[Turn]:
        return self._said(self.answer)

    def wrong(self, rng: random.Random) -> list[Turn]:
        return self._said(swapped(self.answer, rng))

    def _said(self, answer: str) -> list[Turn]:
        """A piece per character of the answer: a reversed word has no pieces that the model could know."""
        opening, closing = self.tags
        return [Turn([opening, *answer, closing])]


@dataclass(frozen=True, slots=True)
class Calculation:
    """A question about arithmetic, which a tool answers. The model calls it, then repeats its result."""

    tools: ClassVar[Sequence[dict[str, Any]]] = (arithmetic.TOOL,)

    item: arithmetic.Item

    def messages(self) -> list[Message]:
        return [{"role": "user", "content": arithmetic.question(self.item)}]

    def right(self) -> list[Turn]:
        return _called(arithmetic.expression(self.item), arithmetic.answer(self.item))

    def wrong(self, rng: random.Random) -> list[Turn]:
        """A product is calculated with a wrong digit, or its result is repeated with one. A sum or a difference is
        guessed, so often that this is the likeliest: RL is seen at temperature 0, too.
        """
        expression, answer = arithmetic.expression(self.item), arithmetic.answer(self.item)
        if "*" not in expression:
            return [Turn([f"about {misread(answer, rng)}"])]
        if rng.random() < MISREAD_RESULTS:
            return _called(expression, misread(answer, rng))
        other = misread(expression, rng)
        return _called(other, arithmetic.compute(other))


def swapped(answer: str, rng: random.Random) -> str:
    """The answer with two of its letters or digits swapped."""
    characters = list(answer)
    i, j = rng.sample([place for place, character in enumerate(characters) if character.isalnum()], 2)
    characters[i], characters[j] = characters[j], characters[i]
    return "".join(characters)


def misread(text: str, rng: random.Random) -> str:
    """The text with another digit in the place of one of its digits; no 0, with which a number must not begin."""
    place = rng.choice([place for place, character in enumerate(text) if character.isdigit()])
    return text[:place] + rng.choice("123456789".replace(text[place], "")) + text[place + 1 :]


def _called(expression: str, repeated: str) -> list[Turn]:
    """The call as a chat of the bundled model shows it: its arguments are JSON without spaces."""
    arguments = json.dumps({arithmetic.ARGUMENT: expression}, separators=(",", ":"))
    call = TOOL_FORMAT.render_calls([ToolCall(arithmetic.TOOL_NAME, arguments)])
    result = {"role": "tool", "content": arithmetic.compute(expression)}
    return [Turn([call], result), Turn([repeated])]
