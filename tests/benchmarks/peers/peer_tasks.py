"""What the bundled model is trained on side by side: items, prompts, rewards, and the held-out share of right answers.

Both interpreters import this, ours and TRL's: so both train on the same items, are paid by the same grader, and are
judged by the same sampler.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.bundled import digits

HELD_OUT_SEED: Final = 1_000_000_000
"""Of the items that reasoning-gym's environments hold out; pre-training left out the first PRETRAINING_LEFT_OUT."""

PRETRAINING_LEFT_OUT: Final = 500
TRAINING_ITEMS: Final = 1_000
"""Few enough that held-out words are left: there are 6,592 words of three and four letters."""

HELD_OUT_ITEMS: Final = 250

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the reward of an answer, from 0 to 1."""

    messages: Messages
    reward: Callable[[str], float]


@dataclass(frozen=True, slots=True)
class PeerTask:
    """`config` is that of our environment. `length`: tokens of prompt and answer together, at most."""

    environment: str
    config: Mapping[str, Any]
    length: int
    training: tuple[Question, ...]
    held_out: tuple[Question, ...]

    def answer_tokens(self, tokenizer: Any) -> int:
        """How long an answer may be beside the longest prompt."""
        asked = [question.messages for question in (*self.training, *self.held_out)]
        prompts = tokenizer.apply_chat_template(asked, add_generation_prompt=True)["input_ids"]
        return self.length - 1 - max(map(len, prompts))


def _sorting() -> PeerTask:
    split = digits.split()
    training, held_out = (
        tuple(
            Question([{"role": "user", "content": digits.prompt(item)}], partial(_is, digits.answer(item)))
            for item in items
        )
        for items in (split.training, split.held_out[:HELD_OUT_ITEMS])
    )
    return PeerTask("sort_digits", {}, 64, training, held_out)


def _is(right: str, text: str) -> float:
    return float(text == right)


def _gym_task(name: str, length: int, fields: Mapping[str, int]) -> PeerTask:
    """The environment draws the same training items: those of seed 0."""
    training = dict(_gym_questions(name, 0, TRAINING_ITEMS, fields))
    others = dict(_gym_questions(name, HELD_OUT_SEED, PRETRAINING_LEFT_OUT, fields))
    held_out = [question for asked, question in others.items() if asked not in training]
    config = {**fields, "size": TRAINING_ITEMS, "system_prompt": "direct"}
    return PeerTask(f"reasoning-gym/{name}", config, length, tuple(training.values()), tuple(held_out[:HELD_OUT_ITEMS]))


def _gym_questions(name: str, seed: int, size: int, fields: Mapping[str, int]) -> Iterator[tuple[str, Question]]:
    from tinker_atropos.environments.adapters.reasoning_gym.library import (
        SYSTEM_PROMPTS,
        create_dataset,
        extract_answer,
    )

    dataset = create_dataset(name, seed=seed, size=size, **fields)

    def reward(entry: Mapping[str, Any], text: str) -> float:
        return float(dataset.score_answer(extract_answer(text), entry))

    for entry in map(dataset.__getitem__, range(size)):
        system = {"role": "system", "content": SYSTEM_PROMPTS["direct"]}
        messages = [system, {"role": "user", "content": entry["question"]}]
        yield entry["question"], Question(messages, partial(reward, entry))


TASKS: Final[Mapping[str, Callable[[], PeerTask]]] = MappingProxyType(
    {
        "sort_digits": _sorting,
        "spell_backward": partial(_gym_task, "spell_backward", 160, {"min_word_len": 3, "max_word_len": 4}),
        "rotate_matrix": partial(_gym_task, "rotate_matrix", 240, {"min_n": 2, "max_n": 2, "max_rotations": 3}),
    }
)
"""What the bundled model was pre-trained to be able to learn."""


def bundled_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(bundled_model_folder(), padding_side="left")


def bundled_model(adapter: Path | None = None) -> Any:
    """In float32, merged with the LoRA weights of a PEFT folder."""
    model: Any = AutoModelForCausalLM.from_pretrained(bundled_model_folder(), dtype=torch.float32)
    if adapter is None:
        return model
    tensors = load_file(adapter / "adapter_model.safetensors")
    scale = LORA_ALPHA / LORA_RANK
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # it is the embedding's, too
    for name, a in tensors.items():
        if ".lora_A." in name:
            layer = model.get_submodule(name.removeprefix("base_model.model.").partition(".lora_A.")[0])
            update = scale * tensors[name.replace(".lora_A.", ".lora_B.")].double() @ a.double()
            layer.weight.data += update.to(layer.weight.dtype)
    return model


LORA_RANK, LORA_ALPHA = 16, 32


@torch.no_grad()
def right_share(task: PeerTask, model: Any, samples: int = 2) -> float:
    """Of answers to held-out questions, so many of each, at temperature 1."""
    torch.manual_seed(0)
    tokenizer = bundled_tokenizer()
    questions = [question for question in task.held_out for _ in range(samples)]
    inputs = tokenizer.apply_chat_template(
        [question.messages for question in questions],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    model.eval()
    limit = task.answer_tokens(tokenizer)
    out = model.generate(**inputs, max_new_tokens=limit, do_sample=True, top_k=0, top_p=1.0)
    texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(question.reward(text) >= 1 for question, text in zip(questions, texts, strict=True)) / len(questions)
