"""TRL's GRPOTrainer on the bundled model and a task of peer_tasks.py, with one torch thread: without arguments the
demo's training part, 40 steps of 32 rollouts.

It runs in a virtual environment of its own, which README.md beside it says how to make. Prints one JSON object.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peer_tasks import LORA_ALPHA, LORA_RANK, TASKS, PeerTask, bundled_model, bundled_tokenizer, right_share
from peft import LoraConfig
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

ROLLOUTS, GROUP_SIZE, LEARNING_RATE = 32, 8, 1e-3


def used() -> float:
    """CPU seconds of this process and of those that it started."""
    return sum(os.times()[:4])


class Rewards:
    """Of each answer that of its question; counts what was sampled."""

    __name__ = "right"

    def __init__(self, task: PeerTask) -> None:
        self._task = task
        self.tokens = 0

    def __call__(
        self, completions: list[Any], completion_ids: list[list[int]], index: list[int], **_: object
    ) -> list[float]:
        self.tokens += sum(map(len, completion_ids))
        texts = [completion[0]["content"] for completion in completions]
        return [self._task.training[each].reward(text) for each, text in zip(index, texts, strict=True)]


class Points(TrainerCallback):
    """Keeps the adapter every so many steps, with the tokens and CPU seconds until then, less those of keeping it."""

    def __init__(self, folder: Path, every: int, rewards: Rewards) -> None:
        self._folder, self._every, self._rewards = folder, every, rewards
        self._keeping, self._began = 0.0, 0.0
        self.kept: list[dict[str, Any]] = []

    def on_train_begin(self, *_: object, **__: object) -> None:
        self._began = used()

    def on_step_end(self, _args: object, state: Any, _control: object, *, model: Any, **_: object) -> None:
        if state.global_step % self._every:
            return
        before = used()
        adapter = self._folder / f"step-{state.global_step}"
        model.save_pretrained(adapter)
        cpu = before - self._began - self._keeping
        self.kept.append(
            {"step": state.global_step, "tokens": self._rewards.tokens, "cpu": cpu, "adapter": str(adapter)}
        )
        self._keeping += used() - before


def trainer(task: PeerTask, folder: str, rewards: Rewards, *, steps: int, seed: int) -> Any:
    """The demo's settings, in TRL's words; what TRL adds to them (a norm of gradients, a schedule) is off."""
    tokenizer = bundled_tokenizer()
    config = GRPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=ROLLOUTS,
        num_generations=GROUP_SIZE,
        max_completion_length=task.answer_tokens(tokenizer),
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
        seed=seed,
    )
    items = [{"prompt": question.messages, "index": index} for index, question in enumerate(task.training)]
    return GRPOTrainer(
        model=bundled_model(),
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_list(items),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def train(task: PeerTask, steps: int, seed: int, every: int, adapters: Path | None) -> dict[str, Any]:
    """Judged before and after; with a folder for adapters instead every so many steps, by who asked for them."""
    set_seed(seed)
    rewards = Rewards(task)
    with tempfile.TemporaryDirectory() as folder:
        training = trainer(task, folder, rewards, steps=steps, seed=seed)
        points = Points(adapters or Path(folder), every, rewards)
        if adapters:
            training.add_callback(points)
        figures = {} if adapters else {"before": right_share(task, training.model)}
        start_up, began = used(), time.monotonic()
        training.train()
        figures |= {"seconds": time.monotonic() - began, "cpu": used() - start_up, "tokens": rewards.tokens}
        if adapters:
            return {**figures, "start_up": start_up, "points": points.kept}
        return {**figures, "after": right_share(task, training.model)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--task", choices=TASKS, default="sort_digits")
    arguments.add_argument("--seed", type=int, default=42)
    arguments.add_argument("--steps", type=int, default=40)
    arguments.add_argument("--every", type=int, default=5, help="steps between adapters that are kept")
    arguments.add_argument("--adapters", type=Path, help="where to keep them")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(TASKS[given.task](), given.steps, given.seed, given.every, given.adapters)))


if __name__ == "__main__":
    main()
