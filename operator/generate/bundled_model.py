"""Make the bundled model from nothing: `PYTHONPATH=operator python -m generate.bundled_model OUT`.

The result must be able to learn: at the end of pre-training, about half of the labels are wrong, so that the model
knows how to solve its tasks but samples the right answer only half of the time. RL then has something to do, and little
enough to do it in 40 steps.
"""

import argparse
import logging
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from generate.pretraining_batches import IGNORED, TokenizedTask
from generate.pretraining_tasks import pretraining_tasks

VOCABULARY_SIZE = 512
HIDDEN_SIZE = 128
LAYERS = 3
CONTEXT_LENGTH = 512
STEPS = 1450
CLEAN_STEPS = 1250
WARMUP_STEPS = 100
LEARNING_RATE = 4e-3
BATCH_SIZES = {"sort": 32, "spell_backward": 48, "rotate_matrix": 12, "calculator": 8}
LOSS_WEIGHTS = {"sort": 1, "spell_backward": 1, "rotate_matrix": 1, "calculator": 4}  # most of a call never varies
WRONG_LABELS = {"sort": 0.52, "spell_backward": 0.34, "rotate_matrix": 0.50, "calculator": 0.53}
NOISY_BATCHES = 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who its now find long down day did get come made may part user assistant "
    "system sort add count answer question digits"
)

log = logging.getLogger(__name__)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer in which every digit is its own token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rng = random.Random(0)  # noqa: S311 -- reproducible on purpose
    tokenizer.train_from_iterator(_tokenizer_corpus(rng), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106 -- a token of text
        pad_token="<|endoftext|>",  # noqa: S106 -- a token of text
        extra_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_LENGTH,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """An untrained Qwen3 of about half a million parameters."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN_SIZE,
            intermediate_size=2 * HIDDEN_SIZE,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=CONTEXT_LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            rope_theta=10_000.0,
        )
    ).float()


def pretrain(model: Qwen3ForCausalLM, tasks: Sequence[TokenizedTask], rng: random.Random) -> None:
    """Train on the tasks' pre-training examples, in place; every step has a batch of each. The learning rate rises in
    WARMUP_STEPS and falls linearly to a twentieth. Labels are right at first: wrong ones would slow learning down.
    """
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / WARMUP_STEPS) * (1 - 0.95 * step / STEPS)
    )
    model.train()
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = {}
        for task in tasks:
            size, wrong_share = _batch(task.name, step)
            logits_NV, targets_N = task.sample(size, wrong_share, rng).answer_logits(model)
            loss = functional.cross_entropy(logits_NV, targets_N)
            torch.autograd.backward(loss * LOSS_WEIGHTS[task.name])
            losses[task.name] = loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == STEPS - 1:
            log.info("step %d of %d: %s", step, STEPS, ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))


@torch.no_grad()
def accuracy(model: Qwen3ForCausalLM, task: TokenizedTask) -> tuple[float, float]:
    """The share of held-out examples that are answered right: greedily, and at temperature 1 (exactly: the mean
    probability of the right answer, without sampling).
    """
    model.eval()
    batch = task.held_out()
    logits_NV, targets_N = batch.answer_logits(model)
    lengths = (batch.targets_BT != IGNORED).sum(1).tolist()
    logprobs_N = functional.log_softmax(logits_NV, -1).gather(1, targets_N[:, None])[:, 0]
    greedy_N = logits_NV.argmax(-1) == targets_N
    greedy = [right.all().item() for right in torch.split(greedy_N, lengths)]
    sampled = [logprobs.sum().exp().item() for logprobs in torch.split(logprobs_N, lengths)]
    return sum(greedy) / len(greedy), sum(sampled) / len(sampled)


def _batch(task: str, step: int) -> tuple[int, float]:
    """Its size and its share of wrong labels. Against the noise of these, batches are larger."""
    if step < CLEAN_STEPS:
        return BATCH_SIZES[task], 0.0
    return NOISY_BATCHES * BATCH_SIZES[task], WRONG_LABELS[task]


def _tokenizer_corpus(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(TEXT.split(), k=12)) + f". {rng.randrange(1000)}" for _ in range(3_000)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder to write the model to")
    out: Path = parser.parse_args().out
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the rounding, and so the result, would depend on their number
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    log.info("%d tokens, %d parameters", len(tokenizer), model.num_parameters())
    tasks = [TokenizedTask(tokenizer, task) for task in pretraining_tasks()]
    pretrain(model, tasks, random.Random(0))  # noqa: S311 -- reproducible on purpose
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for task in tasks:
        log.info("%s, held out: greedy %.3f, sampled %.3f", task.name, *accuracy(model, task))


if __name__ == "__main__":
    main()
