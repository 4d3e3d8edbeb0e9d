"""Make the bundled model from nothing: `PYTHONPATH=operator python -m generate.bundled_model OUT`.

The result must be able to learn: half of the pre-training labels are wrong (two digits swapped), so that the model
knows how to sort but samples the right answer only half of the time. RL then has something to do, and little enough
to do it in 40 steps.
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

from tinker_atropos.environments import digits
from tinker_atropos.environments.digits import Item

VOCABULARY_SIZE = 512
HIDDEN_SIZE = 128
LAYERS = 3
CONTEXT_LENGTH = 512
STEPS = 741
BATCH_SIZE = 128
LEARNING_RATE = 2e-3
WRONG_LABELS = 0.5
EVALUATION_SAMPLES = 4
MAX_ANSWER_TOKENS = 6
IGNORED = -100

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


def pretrain(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> None:
    """Train on the pre-training split, in place. The learning rate falls linearly to a twentieth."""
    items = digits.split().pretraining
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - 0.95 * step / STEPS)
    model.train()
    for step in range(STEPS):
        batch = rng.sample(items, BATCH_SIZE)
        labels = [_label(item, rng) for item in batch]
        inputs_BT, labels_BT = _tensors(tokenizer, batch, labels)
        logits_BTV = model(input_ids=inputs_BT).logits
        loss = functional.cross_entropy(
            logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == STEPS - 1:
            log.info("step %d of %d: loss %.3f", step, STEPS, loss.item())


@torch.no_grad()
def accuracy(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, items: Sequence[Item], temperature: float
) -> float:
    """The share of right answers; temperature 0 is greedy."""
    model.eval()
    inputs_BT = torch.tensor([_prompt_tokens(tokenizer, item) for item in items])
    start = inputs_BT.shape[1]
    for _ in range(MAX_ANSWER_TOKENS):
        logits_BV = model(input_ids=inputs_BT).logits[:, -1]
        next_B1 = (
            torch.multinomial(torch.softmax(logits_BV / temperature, -1), 1)
            if temperature
            else logits_BV.argmax(-1, keepdim=True)
        )
        inputs_BT = torch.cat([inputs_BT, next_B1], dim=1)
    texts: list[str] = tokenizer.batch_decode(inputs_BT[:, start:])
    right = (
        text.startswith(digits.answer(item) + tokenizer.eos_token) for item, text in zip(items, texts, strict=True)
    )
    return sum(right) / len(items)


def _tokenizer_corpus(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(TEXT.split(), k=12)) + f". {rng.randrange(1000)}" for _ in range(3_000)]


def _label(item: Item, rng: random.Random) -> str:
    """The right answer, or with probability WRONG_LABELS the answer with two digits swapped."""
    label = list(digits.answer(item))
    if rng.random() < WRONG_LABELS:
        i, j = rng.sample(range(len(label)), 2)
        label[i], label[j] = label[j], label[i]
    return "".join(label)


def _prompt_tokens(tokenizer: PreTrainedTokenizerFast, item: Item) -> list[int]:
    messages = [{"role": "user", "content": digits.prompt(item)}]
    tokens: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return tokens


def _tensors(
    tokenizer: PreTrainedTokenizerFast, items: Sequence[Item], labels: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, both [batch, time]: every prompt and every answer has the same length."""
    prompts = [_prompt_tokens(tokenizer, item) for item in items]
    answers = [[*tokenizer.encode(label, add_special_tokens=False), tokenizer.eos_token_id] for label in labels]
    inputs = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    masked = [[IGNORED] * len(prompt) + answer for prompt, answer in zip(prompts, answers, strict=True)]
    return torch.tensor(inputs), torch.tensor(masked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder to write the model to")
    out: Path = parser.parse_args().out
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    log.info("%d tokens, %d parameters", len(tokenizer), model.num_parameters())
    pretrain(model, tokenizer, random.Random(0))  # noqa: S311 -- reproducible on purpose
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    held_out = digits.split().held_out
    log.info("held out, greedy: %.3f", accuracy(model, tokenizer, held_out, temperature=0))
    log.info("held out, sampled: %.3f", accuracy(model, tokenizer, held_out * EVALUATION_SAMPLES, temperature=1))


if __name__ == "__main__":
    main()
