"""How long `rlctl rollouts` takes over a large folder, and how much memory. Prints a table; asserts nothing.

    python -m tests.benchmarks.rollouts_bench [MEGABYTES]

The folder is as large as MEGABYTES (64) says, compressed: 8 groups of 8 rollouts with 512 tokens in each step. At last
what hostile files cost: lines of the largest length that is read, and a decompression bomb.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.rollouts.file_lines import LONGEST_LINE

RLCTL = Path(sys.executable).with_name("rlctl")
MEGABYTE = 1_000_000
GROUPS, ROLLOUTS, TOKENS = 8, 8, 512
WORDS = [f" {chr(97 + a)}{chr(97 + b)}{end}" for a in range(26) for b in range(26) for end in ("", "ing", "ed", "er")]


@dataclass(frozen=True)
class Cost:
    seconds: float
    peak_bytes: int
    printed: int
    code: int


def sequence(chance: random.Random, length: int) -> dict[str, Any]:
    tokens = [min(int(chance.expovariate(0.003)), len(WORDS) - 1) for _ in range(length)]
    logprobs = [round(-chance.expovariate(1.5), 5) for _ in tokens]
    return {
        "tokens": tokens,
        "pieces": [WORDS[token] for token in tokens],
        "logprobs": logprobs,
        "trained_logprobs": [round(each + chance.gauss(0, 0.01), 5) for each in logprobs],
        "policy_steps": [[0, length, 1]],
        "fates": [[0, length, "trained"]],
    }


def step_file(number: int, chance: random.Random, groups: int = GROUPS, length: int = TOKENS) -> bytes:
    """`length`: of each rollout, in tokens."""
    metrics = {f"metric/{index}": chance.random() for index in range(60)} | {"reward/mean": 0.5}
    tokens = {"trained": groups * ROLLOUTS * length}
    records: list[dict[str, Any]] = [{"record": "step", "step": number, "metrics": metrics, "tokens": tokens}]
    for group in range(groups):
        rollouts = [{"reward": chance.random(), "sequences": [sequence(chance, length)]} for _ in range(ROLLOUTS)]
        prompt = {"tokens": [1, 2], "pieces": [" solve", " this"]}
        records.append({"record": "group", "group": group, "fate": "trained", "prompt": prompt, "rollouts": rollouts})
    return packed(b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records))


def packed(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(content)


def made_run(state: Path, name: str) -> Path:
    status = {"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z"}
    metadata = {"namespace": "default", "name": name}
    spec = {"environment": "sort_digits", "runtime": "tiny"}
    kind = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun"}
    run = StateStore(Layout(state)).create({**kind, "metadata": metadata, "spec": spec, "status": status})
    folder = Layout(state).rollouts("default", name, run["metadata"]["uid"])
    folder.mkdir(parents=True)
    return folder


def fill(folder: Path, size: int) -> tuple[int, int]:
    """Steps and bytes. Eight files are made, and repeated: their content is what costs."""
    chance = random.Random(1)
    made = itertools.cycle([step_file(number, chance) for number in range(8)])
    steps = total = 0
    while total < size:
        steps += 1
        content = next(made)
        (folder / f"{steps:06}-1.jsonl.zst").write_bytes(content)
        total += len(content)
    return steps, total


LONGEST = LONGEST_LINE - 100
HOSTILE = {
    "a line of empty lists": (b'{"record":"lost","item":[', b"[],", LONGEST // 3, b"[]]}\n"),
    "a line of numbers": (b'{"record":"lost","item":[', b"1,", LONGEST // 2, b"1]}\n"),
    "a line of one text": (b'{"record":"lost","why":"', b"x", LONGEST, b'"}\n'),
    "a bomb of 4 GiB": (b"", b"\0", 4 * 2**30, b""),
}
"""A file's beginning, what is repeated in it and how often, and its end."""


def repeated(begin: bytes, part: bytes, times: int, end: bytes) -> bytes:
    """Compressed piece by piece: what this process has in memory counts in those that it starts."""
    writer, many = zstandard.ZstdCompressor(level=3).compressobj(), MEGABYTE
    pieces = [begin, *[part * many] * (times // many), part * (times % many), end]
    return b"".join(map(writer.compress, pieces)) + writer.flush()


def cost_of(state: Path, *arguments: str) -> Cost:
    command = [str(RLCTL), "rollouts", *arguments, "--local"]
    begun = time.perf_counter()
    with subprocess.Popen(
        command, env={**os.environ, "RL_STATE_DIR": str(state)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        printed = len(process.stdout.read())
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    return Cost(time.perf_counter() - begun, used.ru_maxrss * 1024, printed, process.returncode)


def row(what: str, cost: Cost) -> None:
    failed = f"   exit code {cost.code}" if cost.code else ""
    print(f"{what:<44} {cost.seconds:>8.2f} s {cost.peak_bytes / 2**20:>8.0f} MiB {cost.printed:>12,} B{failed}")


def main() -> None:
    size = int(sys.argv[1]) * MEGABYTE if len(sys.argv) > 1 else 64 * MEGABYTE
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        steps, total = fill(made_run(state, "large"), size)
        print(f"{steps} steps, {total / MEGABYTE:.0f} MB, {steps * GROUPS * ROLLOUTS:,} rollouts")
        print(f"{'what':<44} {'time':>10} {'memory':>12} {'printed':>14}")
        row("rlctl rollouts --help", cost_of(state, "--help"))
        row("the newest step", cost_of(state, "large"))
        row("the newest step, sorted by gap", cost_of(state, "large", "--sort", "gap"))
        row("the newest step, -o jsonl", cost_of(state, "large", "-o", "jsonl"))
        row("--grep: a text that is nowhere", cost_of(state, "large", "--grep", "nowhere at all"))
        row("--grep: a pattern, 20 groups", cost_of(state, "large", "--grep", r"aaing (\w+)ed \1ed", "--limit", "20"))
        row("--steps", cost_of(state, "large", "--steps"))
        for number, (what, content) in enumerate(HOSTILE.items()):
            name = f"hostile-{number}"
            (made_run(state, name) / "000001-1.jsonl.zst").write_bytes(repeated(*content))
            row(what, cost_of(state, name))


if __name__ == "__main__":
    main()
