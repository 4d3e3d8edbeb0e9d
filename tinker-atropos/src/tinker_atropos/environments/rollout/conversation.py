"""The tokens of a rollout, turn by turn: generated tokens are never decoded and re-encoded.

After an answer, the chat template defines how the conversation continues. If its rendering extends the existing tokens,
only what it adds is tokenized and appended. If it does not (say, because the template drops the thinking of earlier
turns), the prompt is a new one, and the rollout gets another sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rl_contract.scored_group import PROMPT_LOGPROB, PROMPT_MASK
from tinker_atropos.environments.rollout.prompt_tokens import Message, PromptTokens


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
    """One rollout in progress. `prompt` is what the next answer is sampled from; `sampled_tokens` counts those of all
    sequences.
    """

    def __init__(self, tokenizer: Any, messages: Sequence[Message]) -> None:
        self._tokenizer = tokenizer
        self._prompts = PromptTokens(tokenizer)
        self.messages = list(messages)
        self.sequences: list[SampledSequence] = []
        self.sampled_tokens = 0
        self._text = self._prompts.text(self.messages)
        self.prompt = self._prompts.ids(self.messages, self._text)
        self._output = Output([], [])
        self._continues = False

    def answered(self, output: Output) -> None:
        if self._continues:
            self.sequences[-1] = self.sequences[-1].continued(self.prompt, output)
        else:
            self.sequences.append(SampledSequence.begun(self.prompt, output))
        self._output = output
        self.sampled_tokens += len(output.tokens)
        self.messages.append({"role": "assistant", "content": answer_text(self._tokenizer, output)})

    def told(self, message: Message) -> None:
        self.messages.append(message)
        asked, self._text = self._text, self._prompts.text(self.messages)
        rendered = self._prompts.ids(self.messages, self._text)
        extended = self._extended(asked, rendered)
        self._continues = extended is not None
        self.prompt = rendered if extended is None else extended

    def _extended(self, asked: str, rendered: list[int]) -> list[int] | None:
        """The tokens so far (the prompt, whose text is `asked`, and the output) plus what the template adds; None if
        its rendering does not begin with them.

        Policies also sample tokens that the tokenizer would never produce for the same text. Such an answer is
        recognized by its text, including the end-of-turn token, and stays as sampled.
        """
        tokens = self.sequences[-1].tokens
        if rendered[: len(tokens)] == tokens:
            return rendered
        said = asked + _verbatim(self._tokenizer, self._output)
        if not self._text.startswith(said):
            return None
        added: list[int] = self._tokenizer.encode(self._text[len(said) :], add_special_tokens=False)
        return [*tokens, *added]


def answer_text(tokenizer: Any, output: Output) -> str:
    return str(tokenizer.decode(output.tokens, skip_special_tokens=True))


def _verbatim(tokenizer: Any, output: Output) -> str:
    return str(tokenizer.decode(output.tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
