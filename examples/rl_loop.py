"""Reinforcement learning of a language model in one file, from the prompt to the gradient.

A run of this project distributes the same algorithm over three processes, so that it survives kills and trains any
environment. Here it is in a single process, in the field's notation:

    P prompts, G completions of each; T tokens of a sequence
    A_{p,g} = r_{p,g} - mean_g r_{p,g}                                   the advantage, centered within its group
    L       = - sum_{p,g,t} pi(a_t) / q(a_t) * A_{p,g}                   q: the policy that sampled the token a_t

The loss is policy gradient with importance sampling; its gradient at pi = q is REINFORCE's with a baseline (Dr. GRPO,
arXiv:2503.20783). Only what was generated is trained: prompts have advantage 0.

    export TINKER_API_KEY=tml-local TINKER_BASE_URL=http://127.0.0.1:8005
    tinker-service &
    python examples/rl_loop.py
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tinker
from tinker import types

from tinker_atropos.trainer.backend.lora_weights import ADAM_BETA1, ADAM_BETA2, ADAM_EPS

MODEL, RANK, LEARNING_RATE = "bundled", 16, 1e-3
PROMPTS, GROUP = 4, 8  # P, G
MAX_TOKENS, HELD_OUT = 8, 128
SECONDS = 120.0  # the longest wait for one answer from the service

Item = tuple[int, ...]


# --- the environment: a prompt, and a reward for its completion -------------------------------------------------------
def prompt(item: Item) -> str:
    return "sort " + " ".join(map(str, item))


def reward(item: Item, completion: str) -> float:
    return float(completion == "".join(map(str, sorted(item))))


def items(count: int, *, held_out: bool) -> list[Item]:
    """Four digits each. Items whose sum is divisible by five are held out: they are never trained on."""
    drawn: list[Item] = []
    while len(drawn) < count:
        item = tuple(random.choices(range(10), k=4))
        if (sum(item) % 5 == 0) == held_out:
            drawn.append(item)
    return drawn


# --- rollouts: sampled from the current policy, scored, compared within their group -----------------------------------
@dataclass
class Rollout:
    """One completion; `logprobs` are log q of its tokens."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    advantage: float = 0.0


class Policy:
    def __init__(self, client: tinker.SamplingClient, tokenizer: object) -> None:
        self.client, self.tokenizer = client, tokenizer

    def encode(self, item: Item) -> list[int]:
        message = [{"role": "user", "content": prompt(item)}]
        text = self.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def roll_out(self, batch: Sequence[Item], count: int) -> list[list[Rollout]]:
        """`count` rollouts of each item. All requests are sent before the first answer is awaited."""
        params = types.SamplingParams(max_tokens=MAX_TOKENS, temperature=1.0)
        prompts = [self.encode(item) for item in batch]
        futures = [self.client.sample(types.ModelInput.from_ints(tokens), count, params) for tokens in prompts]
        answers = [future.result(SECONDS) for future in futures]
        return [
            [self.scored(item, tokens, sequence) for sequence in answer.sequences]
            for item, tokens, answer in zip(batch, prompts, answers, strict=True)
        ]

    def scored(self, item: Item, tokens: list[int], sequence: types.SampledSequence) -> Rollout:
        completion = self.tokenizer.decode(sequence.tokens, skip_special_tokens=True)
        return Rollout(tokens, list(sequence.tokens), list(sequence.logprobs), reward(item, completion))


def center(group: list[Rollout]) -> None:
    """A = r - mean r. A group of equal rewards has no gradient."""
    mean = sum(rollout.reward for rollout in group) / len(group)
    for rollout in group:
        rollout.advantage = rollout.reward - mean


# --- the update: from rollouts to a gradient, and a step along it -----------------------------------------------------
def datum(rollout: Rollout) -> types.Datum:
    """T tokens are T-1 predictions: position t predicts token t+1, so everything is shifted by one relative to them."""
    tokens = rollout.prompt + rollout.tokens
    given = len(rollout.prompt) - 1
    logprobs = np.array([0.0] * given + rollout.logprobs, np.float32)
    advantages = np.array([0.0] * given + [rollout.advantage] * len(rollout.tokens), np.float32)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(np.array(tokens[1:])),
            "logprobs": types.TensorData.from_numpy(logprobs),
            "advantages": types.TensorData.from_numpy(advantages),
        },
    )


def update(training: tinker.TrainingClient, groups: list[list[Rollout]]) -> tinker.SamplingClient:
    """One optimizer step on the groups that have a gradient; returns the new policy."""
    datums = [datum(rollout) for group in groups for rollout in group if any(each.advantage for each in group)]
    if datums:
        gradient = training.forward_backward(datums, "importance_sampling")
        adam = types.AdamParams(learning_rate=LEARNING_RATE, beta1=ADAM_BETA1, beta2=ADAM_BETA2, eps=ADAM_EPS)
        step = training.optim_step(adam)
        gradient.result(SECONDS)
        step.result(SECONDS)
    return training.save_weights_and_get_sampling_client().result(SECONDS)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    random.seed(0)
    training = tinker.ServiceClient().create_lora_training_client(MODEL, rank=RANK, seed=0).result(SECONDS)
    tokenizer, test = training.get_tokenizer(), items(HELD_OUT, held_out=True)
    policy = Policy(training.save_weights_and_get_sampling_client().result(SECONDS), tokenizer)

    def accuracy() -> float:
        return float(np.mean([group[0].reward for group in policy.roll_out(test, 1)]))

    print(f"accuracy before: {accuracy():.3f}")
    for step in range(1, steps + 1):
        groups = policy.roll_out(items(PROMPTS, held_out=False), GROUP)
        for group in groups:
            center(group)
        policy = Policy(update(training, groups), tokenizer)
        print(f"step {step:3}: reward {np.mean([rollout.reward for group in groups for rollout in group]):.3f}")
    print(f"accuracy after: {accuracy():.3f}")


if __name__ == "__main__":
    main()
