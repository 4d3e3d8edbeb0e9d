"""What it costs to keep a step's rollouts: seconds of CPU in the thread that writes them, and bytes.

Prints a table; the goal is less than 1 % of what a step of that size takes at least. Pieces cost most where characters
have several tokens each.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config import TinkerSection
from tinker_atropos.rollout_files.rollout_folder import RolloutFolder
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import Group, Story, TokenSequence
from tinker_atropos.trainer.rollouts.rollout_keeper import KeptRun, RolloutKeeper
from tinker_atropos.trainer.rollouts.token_pieces import TokenPieces
from tinker_atropos.trainer.rollouts.trained_step import TrainedStep
from tinker_atropos.trainer.trajectories.batch_collector import Collected

GOAL_SHARE = 0.01
STEPS = 3
GROUP_SIZE = 8


@dataclass(frozen=True)
class Size:
    """Rollouts of a step, their tokens, and what the step takes at least."""

    rollouts: int
    answer_tokens: int
    prompt_tokens: int
    step_seconds: float


SIZES = (Size(32, 5, 16, 0.4), Size(128, 512, 256, 10.0), Size(128, 4096, 1024, 60.0))


WORDS = [
    "the",
    "sum",
    "of",
    "and",
    "is",
    "then",
    "12",
    "13",
    "40",
    "so",
    "we",
    "add",
    "x",
    "=",
    "y",
    "+",
    "3",
    ",",
    ".",
]


def english(tokenizer: Tokenizer, random: np.random.Generator, length: int) -> Ints:
    text = " ".join(WORDS[index] for index in random.integers(0, len(WORDS), length))
    return tokenizer.encode(text, add_special_tokens=False)[:length]


def chinese(tokenizer: Tokenizer, random: np.random.Generator, length: int) -> Ints:
    """Of 3,000 characters, as most texts; the bundled tokenizer has a token for each of their bytes."""
    text = "".join(map(chr, random.integers(0x4E00, 0x4E00 + 3000, length)))
    return tokenizer.encode(text, add_special_tokens=False)[:length]


def gibberish(_tokenizer: Tokenizer, random: np.random.Generator, length: int) -> Ints:
    """Parts of characters in any order, as a policy that diverges samples them."""
    return random.integers(3, 500, length)


TEXTS: dict[str, Callable[[Tokenizer, np.random.Generator, int], Ints]] = {
    "English": english,
    "3 tokens a character": chinese,
    "gibberish": gibberish,
}


def groups(size: Size, answer: Callable[[int], Ints], random: np.random.Generator) -> Iterator[Group]:
    for item in range(size.rollouts // GROUP_SIZE):
        prompt = answer(size.prompt_tokens)
        sequences = tuple(sequence(prompt, answer(size.answer_tokens), random, index) for index in range(GROUP_SIZE))
        yield Group(sequences, np.arange(GROUP_SIZE), story=Story(item=item))


def sequence(prompt: Ints, answer: Ints, random: np.random.Generator, index: int) -> TokenSequence:
    tokens = np.concatenate([prompt, answer])
    generated = np.arange(len(tokens)) >= len(prompt)
    logprobs = np.where(generated, -(random.exponential(0.5, len(tokens)) ** 3), np.nan)
    policy_steps = np.where(generated, 7, -1)
    return TokenSequence(tokens, generated, logprobs, policy_steps, float(index % 2), marked_T=generated)


def step_of(made: tuple[Group, ...], config: TinkerSection) -> TrainedStep:
    batch = build_batch(made, config)
    logprobs = [datum.logprobs_T - 1e-3 for datum in batch.datums]
    return TrainedStep(Collected(made, Counter(), 0, 0, 0, waited=0.0), batch, logprobs)


class MeteredKeeper(RolloutKeeper):
    """Measures the CPU time of each write in its thread."""

    seconds: list[float]

    def _write(self, *work: object) -> None:
        begun = time.thread_time()
        super()._write(*work)  # type: ignore[arg-type]
        self.seconds.append(time.thread_time() - begun)


def measure(size: Size, text: Callable[[Tokenizer, np.random.Generator, int], Ints]) -> tuple[list[float], int]:
    """CPU seconds of each step, and the bytes of one."""
    random, tokenizer, config = np.random.default_rng(1), Tokenizer("bundled"), TinkerSection(loss="ppo")
    made = tuple(groups(size, lambda length: text(tokenizer, random, length), random))
    step = step_of(made, config)
    with tempfile.TemporaryDirectory() as place:
        folder = RolloutFolder(Path(place), 2**32)
        keeper = MeteredKeeper(folder, KeptRun("bench", "", "", 1, "bundled"), config, TokenPieces(tokenizer).of)
        keeper.seconds = []
        for number in range(1, STEPS + 1):
            keeper.step_trained(number, step, {})
        keeper.close(600)
        assert keeper.note is None, keeper.note
        return keeper.seconds, folder.names()[f"{STEPS:06d}-1.jsonl.zst"]


def main() -> None:
    print(f"{'rollouts':>9}{'tokens':>8}{'prompt':>8}  {'text':<24}", end="")
    print(f"{'CPU s':>8}{'first':>8}{'of a step':>11}{'kB':>9}{'B/token':>9}")
    worst = 0.0
    for size in SIZES:
        for name, text in TEXTS.items():
            seconds, kept = measure(size, text)
            usual = min(seconds)
            worst = max(worst, usual / size.step_seconds)
            tokens = size.rollouts * size.answer_tokens + size.rollouts // GROUP_SIZE * size.prompt_tokens
            print(
                f"{size.rollouts:>9}{size.answer_tokens:>8}{size.prompt_tokens:>8}  {name:<24}{usual:>8.3f}"
                f"{seconds[0]:>8.3f}{usual / size.step_seconds:>11.2%}{kept / 1000:>9.0f}{kept / tokens:>9.1f}"
            )
    sys.exit(0 if worst < GOAL_SHARE else f"the goal is less than {GOAL_SHARE:.0%} of a step")


if __name__ == "__main__":
    main()
