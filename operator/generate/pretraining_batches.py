"""Examples of a task as tokens, and the model's logits of their answers.

All prompts of a task begin with the same tokens. In a causal model, what becomes of these does not depend on what
follows: a batch runs them once and shares them, which halves the time of pre-training.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from generate.pretraining_examples import TOOL_FORMAT, PretrainingTask, Turn
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.tokenizer import Tokenizer

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts with answers, and at every place the token that follows if it belongs to the answer."""

    shared_1S: torch.Tensor
    inputs_BT: torch.Tensor
    targets_BT: torch.Tensor

    def answer_logits(self, model: Qwen3ForCausalLM) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [answer tokens, vocabulary] and the tokens themselves, row after row."""
        cache = model.model(input_ids=self.shared_1S, use_cache=True).past_key_values
        cache.batch_repeat_interleave(len(self.inputs_BT))
        # By place: transformers 5.24 gave the fourth parameter another name.
        hidden_BTH = model.model(self.inputs_BT, None, None, cache).last_hidden_state
        answers_BT = self.targets_BT != IGNORED
        return model.lm_head(hidden_BTH[answers_BT]), self.targets_BT[answers_BT]


class TokenizedTask:
    """A task with its prompts as tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, task: PretrainingTask) -> None:
        self.name = task.name
        self._tokenizer = tokenizer
        self._renderer = ChatRenderer(Tokenizer.of(tokenizer), TOOL_FORMAT)
        examples = [*task.pretraining, *task.held_out]
        prompts = [self._renderer.ids(example.messages(), example.tools).tolist() for example in examples]
        shared = _shared_length(prompts)
        self._shared_1S = torch.tensor([prompts[0][:shared]])
        rests = [prompt[shared:] for prompt in prompts]
        self._pretraining = list(zip(task.pretraining, rests, strict=False))
        self._held_out = list(zip(task.held_out, rests[len(task.pretraining) :], strict=True))

    def sample(self, size: int, wrong_share: float, rng: random.Random) -> Batch:
        """Examples of pre-training; about `wrong_share` of them have a mistake."""
        chosen = rng.sample(self._pretraining, size)
        return self._batch(
            (rest, example.wrong(rng) if rng.random() < wrong_share else example.right()) for example, rest in chosen
        )

    def held_out(self) -> Batch:
        """All held-out examples, answered right."""
        return self._batch((rest, example.right()) for example, rest in self._held_out)

    def _batch(self, conversations: Iterable[tuple[list[int], list[Turn]]]) -> Batch:
        inputs, targets = [], []
        for prompt, turns in conversations:
            tokens, learned = self._continuation(turns)
            inputs.append(torch.tensor([*prompt, *tokens[:-1]]))
            targets.append(torch.tensor([IGNORED] * (len(prompt) - 1) + learned))
        return Batch(
            self._shared_1S,
            pad_sequence(inputs, batch_first=True),
            pad_sequence(targets, batch_first=True, padding_value=IGNORED),
        )

    def _continuation(self, turns: Sequence[Turn]) -> tuple[list[int], list[int]]:
        """The tokens that follow the prompt, and the same with only those that the model writes."""
        tokens, learned = list[int](), list[int]()
        for turn in turns:
            said = [*itertools.chain.from_iterable(map(self._encoded, turn.pieces)), self._tokenizer.eos_token_id]
            heard = self._encoded("\n" + self._renderer.text([turn.reply])) if turn.reply else []
            tokens += [*said, *heard]
            learned += [*said, *[IGNORED] * len(heard)]
        return tokens, learned

    def _encoded(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens


def _shared_length(prompts: Sequence[list[int]]) -> int:
    """With how many equal tokens all prompts begin: the first and the last in order differ earliest."""
    pairs = zip(min(prompts), max(prompts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
