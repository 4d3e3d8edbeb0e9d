"""TRL's GRPOTrainer on the demo's model and task: 40 steps of 32 rollouts, with one torch thread.

It runs in a virtual environment of its own, which README.md beside it says how to make. Prints one JSON object.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import json
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from tinker_atropos.bundled import bundled_model_folder
from tinker_atropos.environments.bundled import digits

STEPS, ROLLOUTS, GROUP_SIZE = 40, 32, 8
LEARNING_RATE, RANK, ALPHA = 1e-3, 16, 32
MAX_TOKENS = 46
"""What the demo leaves for an answer: 64 less one, less the prompt's 17."""
HELD_OUT, SAMPLES = 250, 2


class Rewards:
    """Of each answer 1 if it is right; counts what was sampled."""

    __name__ = "right"

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(
        self, completions: list[Any], completion_ids: list[list[int]], answer: list[str], **_: object
    ) -> list[float]:
        self.tokens += sum(map(len, completion_ids))
        texts = [completion[0]["content"] for completion in completions]
        return [float(text == right) for text, right in zip(texts, answer, strict=True)]


def asked(item: digits.Item) -> list[dict[str, str]]:
    return [{"role": "user", "content": digits.prompt(item)}]


def training_set() -> Dataset:
    items = digits.split().training
    return Dataset.from_list([{"prompt": asked(item), "answer": digits.answer(item)} for item in items])


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any) -> float:
    """The share of right answers to held-out prompts, sampled at temperature 1."""
    items = digits.split().held_out[:HELD_OUT] * SAMPLES
    inputs = tokenizer.apply_chat_template(
        [asked(item) for item in items], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    model.eval()
    out = model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=True, top_k=0, top_p=1.0)
    texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(text == digits.answer(item) for text, item in zip(texts, items, strict=True)) / len(items)


def trainer(folder: str, rewards: Rewards, tokenizer: Any) -> Any:
    """The demo's settings, in TRL's words; what TRL adds to them (a norm of gradients, a schedule) is off."""
    config = GRPOConfig(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=GROUP_SIZE,
        max_completion_length=MAX_TOKENS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        adam_beta1=0.9,
        adam_beta2=0.95,
        max_grad_norm=0.0,
        beta=0.0,
        scale_rewards="none",
        loss_type="dapo",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = AutoModelForCausalLM.from_pretrained(bundled_model_folder(), dtype=torch.float32)
    return GRPOTrainer(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=training_set(),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def main() -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_folder(), padding_side="left")
    rewards = Rewards()
    with tempfile.TemporaryDirectory() as folder:
        training = trainer(folder, rewards, tokenizer)
        before = accuracy(training.model, tokenizer)
        began, began_cpu = time.monotonic(), time.process_time()
        training.train()
        seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
        after = accuracy(training.model, tokenizer)
    figures = {"seconds": seconds, "cpu": cpu, "tokens": rewards.tokens, "before": before, "after": after}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
