"""What one rollout sampled, turn by turn, and the sequences that are trained of it.

A program sends its whole history as text with each request. A prompt that extends, as text, what was sampled before
continues with the very tokens: they are never decoded and encoded again. One that does not is tokenized as a whole, and
begins another sequence of the rollout. So every sampled token is trained once, where it was sampled, and is context
everywhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tinker_atropos.environments.rollout.conversation import Output, SampledSequence


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer. `text` is that of the prompt and the answer together, with special tokens."""

    prompt: list[int]
    output: Output
    text: str


@dataclass(slots=True)
class TurnRecord:
    turns: list[Turn] = field(default_factory=list)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.output.tokens) for turn in self.turns)

    def extended_by(self, text: str) -> Turn | None:
        """The longest turn that a prompt goes on from."""
        before = [turn for turn in self.turns if text.startswith(turn.text)]
        return max(before, key=lambda turn: len(turn.text), default=None)

    def prompt_ids(self, text: str, encode: Callable[[str], list[int]]) -> list[int]:
        """The token ids of a prompt: those so far, and what the text adds."""
        turn = self.extended_by(text)
        if turn is None:
            return encode(text)
        return [*turn.prompt, *turn.output.tokens, *encode(text[len(turn.text) :])]

    def add(self, prompt: list[int], output: Output, text: str) -> None:
        if output.tokens:
            self.turns.append(Turn(prompt, output, text))

    def sequences(self) -> list[SampledSequence]:
        """A turn continues the longest sequence that its prompt begins with, or begins one of its own."""
        sequences: list[SampledSequence] = []
        for turn in self.turns:
            fitting = [at for at, each in enumerate(sequences) if turn.prompt[: len(each.tokens)] == each.tokens]
            if fitting:
                longest = max(fitting, key=lambda at: len(sequences[at].tokens))
                sequences[longest] = sequences[longest].continued(turn.prompt, turn.output)
            else:
                sequences.append(SampledSequence.begun(turn.prompt, turn.output))
        return sequences
