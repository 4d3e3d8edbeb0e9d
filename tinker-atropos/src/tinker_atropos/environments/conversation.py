"""The tokens of a rollout, turn by turn: generated tokens are never decoded and re-encoded.

After an answer, the chat template defines how the conversation continues. If its rendering extends the existing tokens,
only what it adds is tokenized and appended. If it does not (say, because the template drops the thinking of earlier
turns), the prompt is a new one, and the rollout gets another sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinker_atropos.scored_group import PROMPT_LOGPROB, PROMPT_MASK

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """One sampled continuation, including its end-of-turn token if that was sampled."""

    tokens: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """Tokens as the trainer needs them, all lists of one length; `masks` and `logprobs` mark what was not sampled."""

    tokens: list[int]
    masks: list[int]
    logprobs: list[float]

    @classmethod
    def begun(cls, prompt: list[int], output: Output) -> "SampledSequence":
        return cls([], [], []).continued(prompt, output)

    def continued(self, prompt: list[int], output: Output) -> "SampledSequence":
        """The sequence with another turn; `prompt` begins with its tokens."""
        added = len(prompt) - len(self.tokens)
        return SampledSequence(
            tokens=[*prompt, *output.tokens],
            masks=[*self.masks, *[PROMPT_MASK] * added, *output.tokens],
            logprobs=[*self.logprobs, *[PROMPT_LOGPROB] * added, *output.logprobs],
        )


class Conversation:
    """One rollout in progress. `prompt` is what the next answer is sampled from."""

    def __init__(self, tokenizer: Any, messages: Sequence[Message]) -> None:
        self._tokenizer = tokenizer
        self.messages = list(messages)
        self.sequences: list[SampledSequence] = []
        self.prompt = render(tokenizer, self.messages)
        self._asked: list[Message] = []
        self._output = Output([], [])
        self._continues = False

    def answered(self, output: Output) -> None:
        """Add the policy's answer to `prompt`."""
        if self._continues:
            self.sequences[-1] = self.sequences[-1].continued(self.prompt, output)
        else:
            self.sequences.append(SampledSequence.begun(self.prompt, output))
        self._asked, self._output = list(self.messages), output
        self.messages.append({"role": "assistant", "content": answer_text(self._tokenizer, output)})

    @property
    def sampled_tokens(self) -> int:
        """How many tokens of all sequences were sampled."""
        return sum(mask != PROMPT_MASK for sequence in self.sequences for mask in sequence.masks)

    def told(self, message: Message) -> None:
        """Continue with a user's or a tool's message."""
        self.messages.append(message)
        tokens = self.sequences[-1].tokens
        extended = extended_prompt(self._tokenizer, self._asked, self._output, self.messages, tokens)
        self._continues = extended is not None
        self.prompt = render(self._tokenizer, self.messages) if extended is None else extended


def render(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The prompt of the assistant's next turn."""
    ids: list[int] = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    return ids


def answer_text(tokenizer: Any, output: Output) -> str:
    return str(tokenizer.decode(output.tokens, skip_special_tokens=True))


def extended_prompt(
    tokenizer: Any,
    asked: Sequence[Message],
    output: Output,
    messages: Sequence[Message],
    tokens: list[int],
) -> list[int] | None:
    """`tokens` (the prompt of `asked`, and the output) plus what the template adds for `messages`; None if its
    rendering of `messages` does not begin with them.

    Policies also sample tokens that the tokenizer would never produce for the same text. Such an answer is recognized
    by its text, including the end-of-turn token, and stays as sampled.
    """
    rendered = render(tokenizer, messages)
    if rendered[: len(tokens)] == tokens:
        return rendered
    said = _text(tokenizer, asked) + _verbatim(tokenizer, output)
    text = _text(tokenizer, messages)
    if not text.startswith(said):
        return None
    added: list[int] = tokenizer.encode(text[len(said) :], add_special_tokens=False)
    return [*tokens, *added]


def _text(tokenizer: Any, messages: Sequence[Message]) -> str:
    return str(tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False))


def _verbatim(tokenizer: Any, output: Output) -> str:
    return str(tokenizer.decode(output.tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
