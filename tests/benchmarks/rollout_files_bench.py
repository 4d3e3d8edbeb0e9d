"""What it costs to keep a step's rollouts: seconds of CPU in the thread that writes them, and bytes.

Prints a table; the goal is less than 1 % of what a step of that size takes at least. Pieces cost most where characters
have several tokens each. A second table has what it costs to read reports of environments: so long samplers wait.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.request_handling import MAX_BODY_BYTES, validated
from tinker_atropos.chat.sampling import Ints
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.runner.reporting.rollout_reports import MAX_BYTES
from tinker_atropos.rollout_files.rollout_store import MEGABYTE, BoundedFolder
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import Group, Story, TokenSequence
from tinker_atropos.trainer.rollouts.report_route import MAX_BRACKETS, ReportBudget
from tinker_atropos.trainer.rollouts.reported_rollouts import MAX_GROUPS, RolloutReport
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, RolloutLines, TrainedStep
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter
from tinker_atropos.trainer.rollouts.token_pieces import TokenPieces
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


def step_of(made: tuple[Group, ...], config: TrainerSettings) -> TrainedStep:
    batch = build_batch(made, config)
    logprobs = [datum.logprobs_T - 1e-3 for datum in batch.datums]
    return TrainedStep(Collected(made, Counter(), 0, 0, 0, waited=0.0), batch, logprobs)


class MeteredKeeper(RolloutWriter):
    """Measures the CPU time of each write in its thread."""

    seconds: list[float]

    def _write(self, *work: object) -> None:
        begun = time.thread_time()
        super()._write(*work)  # type: ignore[arg-type]
        self.seconds.append(time.thread_time() - begun)


def measure(size: Size, text: Callable[[Tokenizer, np.random.Generator, int], Ints]) -> tuple[list[float], int]:
    """CPU seconds of each step, and the bytes of one."""
    random, tokenizer, config = np.random.default_rng(1), Tokenizer("bundled"), TrainerSettings(loss="ppo")
    made = tuple(groups(size, lambda length: text(tokenizer, random, length), random))
    step = step_of(made, config)
    with tempfile.TemporaryDirectory() as place:
        folder = BoundedFolder(Path(place), 2**32)
        lines = RolloutLines(KeptRun("bench", "", "", 1, "bundled"), config, TokenPieces(tokenizer).of)
        keeper = MeteredKeeper(folder, lines)
        keeper.seconds = []
        for number in range(1, STEPS + 1):
            keeper.step_trained(number, step, {})
        keeper.close(600)
        assert keeper.warning is None, keeper.warning
        return keeper.seconds, folder.names()[f"{STEPS:06d}-1.jsonl.zst"]


def evaluated(random: np.random.Generator, size: int) -> bytes:
    """A report of about so many bytes, as an evaluation with its logprobs."""
    groups: list[bytes] = []
    while sum(map(len, groups)) < size:
        tokens = random.integers(0, 150_000, (GROUP_SIZE, 600)).tolist()
        masks = [[-100] * 100 + row[100:] for row in tokens]
        logprobs = (-random.random((GROUP_SIZE, 600))).tolist()
        group = {"tokens": tokens, "masks": masks, "scores": [1.0] * GROUP_SIZE, "inference_logprobs": logprobs}
        groups.append(orjson.dumps({"fate": "evaluated", "step": 3, "group": group}))
    return b'{"groups":[' + b",".join(groups[:MAX_GROUPS]) + b"]}"


def filled(filler: bytes, count: int) -> bytes:
    """A report whose one group says so much besides."""
    said = b",".join([filler] * count)
    group = b'{"tokens":[[1,2]],"masks":[[-100,2]],"scores":[1],"messages":[%b]}' % said
    return b'{"groups":[{"fate":"evaluated","step":3,"group":%b}]}' % group


def show_reports() -> None:
    random = np.random.default_rng(1)
    largest = MAX_BODY_BYTES - 200
    bodies = {
        "as sent": evaluated(random, MAX_BYTES),
        "2 MB": evaluated(random, 2 * MEGABYTE),
        "empty lists": filled(b"[]", MAX_BRACKETS - 10),
        "objects": filled(b'{"":{}}', MAX_BRACKETS // 2 - 10),
        "numbers": filled(b"0", largest // 2),
    }
    print(f"\n{'report':<16}{'MB':>8}{'ms':>8}{'ms/MB':>8}")
    for name, body in bodies.items():
        ReportBudget().spend("", body)
        begun = time.thread_time()
        validated(RolloutReport, body)
        milliseconds = (time.thread_time() - begun) * 1000
        size = len(body) / MEGABYTE
        print(f"{name:<16}{size:>8.2f}{milliseconds:>8.1f}{milliseconds / size:>8.1f}")


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
    show_reports()
    sys.exit(0 if worst < GOAL_SHARE else f"the goal is less than {GOAL_SHARE:.0%} of a step")


if __name__ == "__main__":
    main()
