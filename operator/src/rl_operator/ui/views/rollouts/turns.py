"""Whose words the tokens of a conversation are: turns, from the special tokens of chat templates. Pure.

Only tokens that the policy was given begin a turn: what it writes itself cannot pretend to be somebody else's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rl_operator.rollouts.rollout_figures import GIVEN, spans
from rl_operator.rollouts.rollout_records import SampledSequence

OPENERS: Final[Mapping[str, str]] = {
    "<|im_start|>": "\n",
    "<|start_header_id|>": "<|end_header_id|>",
    "<start_of_turn>": "\n",
    "<|start|>": "<|message|>",
    "<|im_user|>": "<|im_middle|>",
    "<|im_assistant|>": "<|im_middle|>",
    "<|im_system|>": "<|im_middle|>",
}
"""What a turn begins with, and what the name of its role ends with: ChatML, Llama, Gemma, Harmony, Kimi."""

ROLE_TOKENS: Final[Mapping[str, str]] = {
    "<｜User｜>": "user",
    "<｜Assistant｜>": "assistant",
    "[INST]": "user",
    "[/INST]": "assistant",
    "<|user|>": "user",
    "<|assistant|>": "assistant",
    "<|system|>": "system",
    "<|observation|>": "tool",
}
"""Tokens that are a role: DeepSeek, Mistral, GLM."""

ENDS: Final = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>", "<eos>"}
)
"""What a turn ends with; readers of its text do without."""

ROLE_WORDS: Final[Mapping[str, str]] = {
    "assistant": "policy",
    "model": "policy",
    "policy": "policy",
    "user": "user",
    "human": "user",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "given": "given",
}
"""For people, and for the style sheet."""

LONGEST_ROLE: Final = 8
"""Tokens of a role's name."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Tokens from `start` to before `end`. `text_start`: behind the name of the role."""

    role: str
    start: int
    text_start: int
    end: int

    @property
    def words(self) -> str:
        """A role that is not known goes by its name, in a few characters."""
        return ROLE_WORDS.get(self.role, self.role[:20] or "given")

    @property
    def kind(self) -> str:
        """Of the style sheet."""
        return ROLE_WORDS.get(self.role, "given")


def is_given(sequence: SampledSequence) -> list[bool]:
    """For each token, whether the policy did not sample it."""
    given: list[bool] = []
    for start, end, fate in spans(sequence):
        given += [fate in GIVEN] * (end - start)
    return given


def turns_of(prompt: Sequence[str], sequence: SampledSequence) -> list[Turn]:
    """Of the sequence; the `prompt` before it says whose turn it begins with. Without roles, what was given and what
    was sampled take turns.
    """
    told = [*prompt, *sequence.pieces]
    given = [True] * len(prompt) + is_given(sequence)
    begins = list(_beginnings(told, given)) or list(_changes(given, len(prompt)))
    first = len(prompt)
    return [_moved(turn, first) for turn in _between(begins, len(told)) if turn.end > first]


def _moved(turn: Turn, first: int) -> Turn:
    return Turn(turn.role, max(turn.start, first) - first, max(turn.text_start, first) - first, turn.end - first)


def _between(begins: Iterable[tuple[int, int, str]], end: int) -> Iterator[Turn]:
    """From where turns begin, where their text does, and their roles."""
    known = list(begins)
    if not known or known[0][0] > 0:
        known.insert(0, (0, 0, ""))
    for (start, text_start, role), (stop, _, _) in zip(known, [*known[1:], (end, end, "")], strict=True):
        if stop > start:
            yield Turn(role, start, min(text_start, stop), stop)


def _beginnings(pieces: Sequence[str], given: Sequence[bool]) -> Iterator[tuple[int, int, str]]:
    for index, piece in enumerate(pieces):
        if not given[index]:
            continue
        if role := ROLE_TOKENS.get(piece):
            yield index, index + 1, role
        elif closer := OPENERS.get(piece):
            yield index, *_role_at(pieces, index + 1, closer)


def _role_at(pieces: Sequence[str], start: int, closer: str) -> tuple[int, str]:
    """Where the text begins, and the role. A name that does not end is none."""
    for at in range(start, min(start + LONGEST_ROLE, len(pieces))):
        if pieces[at].startswith(closer):
            return at + 1, "".join(pieces[start:at]).strip().split("<|")[0].lower()
    return start, ""


def _changes(given: Sequence[bool], first: int) -> Iterator[tuple[int, int, str]]:
    for index, each in enumerate(given):
        if index in (0, first) or each != given[index - 1]:
            yield index, index, "given" if each else "policy"
