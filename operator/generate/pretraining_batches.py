"""Examples of a task as tokens, and the model's logits of their answers.

All prompts of a task begin with the same tokens. In a causal model, what becomes of these does not depend on what
follows: a batch runs them once and shares them, which halves the time of pre-training.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from generate.pretraining_tasks import Example, PretrainingTask, mistake

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
        prompts = self._prompts([*task.pretraining, *task.held_out])
        shared = _shared_length(prompts)
        self._shared_1S = torch.tensor([prompts[0][:shared]])
        rests = [prompt[shared:] for prompt in prompts]
        self._pretraining = list(zip(task.pretraining, rests, strict=False))
        self._held_out = list(zip(task.held_out, rests[len(task.pretraining) :], strict=True))

    def sample(self, size: int, wrong_share: float, rng: random.Random) -> Batch:
        """Examples of pre-training; about `wrong_share` of their answers are wrong."""
        chosen = rng.sample(self._pretraining, size)
        answers = [
            mistake(example.answer, rng) if rng.random() < wrong_share else example.answer for example, _ in chosen
        ]
        return self._batch(chosen, answers)

    def held_out(self) -> Batch:
        """All held-out examples, with the right answers."""
        return self._batch(self._held_out, [example.answer for example, _ in self._held_out])

    def _batch(self, chosen: Sequence[tuple[Example, list[int]]], answers: Sequence[str]) -> Batch:
        pairs = [
            (rest, self._completion(example, answer)) for (example, rest), answer in zip(chosen, answers, strict=True)
        ]
        inputs = [torch.tensor([*prompt, *completion[:-1]]) for prompt, completion in pairs]
        targets = [torch.tensor([IGNORED] * (len(prompt) - 1) + completion) for prompt, completion in pairs]
        return Batch(
            self._shared_1S,
            pad_sequence(inputs, batch_first=True),
            pad_sequence(targets, batch_first=True, padding_value=IGNORED),
        )

    def _prompts(self, examples: Sequence[Example]) -> list[list[int]]:
        conversations = [example.messages() for example in examples]
        prompts: list[list[int]] = self._tokenizer.apply_chat_template(
            conversations, add_generation_prompt=True, return_dict=False
        )
        return prompts

    def _completion(self, example: Example, answer: str) -> list[int]:
        """A token per character of the answer: a reversed word has no pieces that the model could know."""
        opening, closing = example.tags
        parts = [opening, *answer, closing]
        tokens = [token for part in parts for token in self._tokenizer.encode(part, add_special_tokens=False)]
        return [*tokens, self._tokenizer.eos_token_id]


def _shared_length(prompts: Sequence[list[int]]) -> int:
    """With how many equal tokens all prompts begin: the first and the last in order differ earliest."""
    pairs = zip(min(prompts), max(prompts), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
