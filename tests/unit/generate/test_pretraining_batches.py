"""Batches of pre-training: shared tokens change no logits, and the targets are the answers."""

import random

import pytest
import torch

from generate.bundled_model import accuracy, make_model, make_tokenizer
from generate.pretraining_batches import IGNORED, Batch, TokenizedTask
from generate.pretraining_examples import PretrainingTask, SingleAnswer

TAGS = ("<answer>", "</answer>")
EXAMPLES = [SingleAnswer(f"reverse {word}", word[::-1], "Be brief.", TAGS) for word in ("the", "time", "other", "at")]
TASK = PretrainingTask("reverse", EXAMPLES[:3], EXAMPLES[3:])
tokenizer = make_tokenizer()


@pytest.fixture(scope="module")
def task() -> TokenizedTask:
    return TokenizedTask(tokenizer, TASK)


def texts(batch: Batch) -> set[str]:
    return {tokenizer.decode(row[row != IGNORED]) for row in batch.targets_BT}


def test_targets_are_the_answers_or_mistakes(task: TokenizedTask) -> None:
    right = {f"<answer>{word}</answer><|im_end|>" for word in ("eht", "emit", "rehto")}
    assert texts(task.sample(3, 0, random.Random(0))) == right
    wrong = texts(task.sample(3, 1, random.Random(0)))
    assert not wrong & right
    assert sorted(map(sorted, wrong)) == sorted(map(sorted, right)), "the same letters in another order"
    assert (task.held_out().targets_BT != IGNORED).sum() == 3 + 2 + 4 + 1, "a token per letter"


def test_shared_tokens_change_no_logits(task: TokenizedTask) -> None:
    model = make_model(tokenizer).double()
    logits, tokens = task.held_out().answer_logits(model)
    prompt = tokenizer.apply_chat_template(EXAMPLES[3].messages(), add_generation_prompt=True, return_dict=False)
    whole = torch.tensor([[*prompt, *tokens]])
    torch.testing.assert_close(logits, model(whole).logits[0, len(prompt) - 1 : -1], rtol=0, atol=1e-9)


def test_an_untrained_model_knows_nothing(task: TokenizedTask) -> None:
    greedy, sampled = accuracy(make_model(tokenizer), task)
    assert greedy == 0
    assert sampled < 1e-6
