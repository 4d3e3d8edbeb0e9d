"""What was sampled, as the inference server saw it: the source of truth for logprobs, policy steps and parameters.

Environments return tokens, but often drop the logprobs, and none can carry a policy step. So the generations of a
sequence are found by its token ids: wherever the tokens before a position are a recorded prompt and those after it
are that prompt's output, that part of the sequence was sampled (`Ledger.attribute`).

Memory is bounded in bytes; the oldest generation is evicted first. A `LedgerFile` keeps the same on disk, so queued
groups keep their policy steps across a restart; it is read once at startup and written asynchronously.
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tinker_atropos.chat.sampling import Bools, Floats, Ints
from tinker_atropos.trainer.data.groups import TokenSequence
from tinker_atropos.trainer.inference.ledger_file import GenerationRecord, LedgerFile

DEFAULT_CAPACITY_BYTES = 256 * 2**20
"""Room for about 60,000 outputs of 512 tokens."""

ID = np.dtype(np.int32)
Shaping = Literal["temperature", "top_p", "top_k"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """A sequence with what the ledger knows about it.

    `sequence.generated_T` is narrowed to what the policy sampled; `sequence.truncated` is what the last generation
    says, if the sequence's last generated span has one. `missing` are the spans [start, end) of generated
    positions for which neither the ledger nor the environment has a logprob. `generations` are the records found.
    """

    sequence: TokenSequence
    missing: tuple[tuple[int, int], ...]
    generations: tuple[GenerationRecord, ...]


class _Part(NamedTuple):
    """`length` tokens from `start` were sampled: they are the first of the generation's output."""

    start: int
    length: int
    generation: GenerationRecord


class Ledger:
    """Bounded memory of generations. `folder` None keeps nothing on disk."""

    def __init__(self, folder: Path | None = None, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._bytes = 0
        self._in_order: deque[GenerationRecord] = deque()
        self._by_prompt: dict[int, list[GenerationRecord]] = {}
        self._file = LedgerFile(folder) if folder else None
        for generation in self._file.load() if self._file else ():
            self._remember(generation)

    def __len__(self) -> int:
        return len(self._in_order)

    def close(self) -> None:
        """Flush what is not on disk yet."""
        if self._file:
            self._file.close()

    def record(
        self,
        prompt_T: Ints,
        output_T: Ints,
        logprobs_T: Floats,
        policy_step: int,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        sampled_at: float | None = None,
        truncated: bool = False,
    ) -> None:
        """Record one generation of at least one token: how it was sampled, and when (seconds since the epoch; None:
        now). `truncated`: it ended by length.
        """
        generation = GenerationRecord(
            number=self._in_order[-1].number + 1 if self._in_order else 0,
            prompt_key=int(prefix_keys(prompt_T)[-1]),
            output=output_T.astype(ID).tobytes(),
            logprobs=logprobs_T.astype(np.float32).tobytes(),
            policy_step=policy_step,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            sampled_at=time.time() if sampled_at is None else sampled_at,
            truncated=truncated,
        )
        self._remember(generation)
        if self._file:
            self._file.append(generation, self._in_order[0].number)

    def attribute(self, sequence: TokenSequence, received_at: float = math.inf) -> Attribution:
        """Find the generations within each generated span of a sequence that the api received at `received_at`.

        What was sampled later is ignored, even if the output is the same: so a replay finds what was found the first
        time. Tokens of a span are, in this order of trust:

        * sampled, if the ledger has them: they take its logprob and policy step. The rest of such a span was not
          sampled (a template's tokens, a doubled EOS) and is not trained;
        * sampled, if the environment sent logprobs: the policy step stays unknown. A gap in them was not sampled;
        * missing, all of them, if there is no logprob from either.
        """
        generated_T, logprobs_T = sequence.generated_T.copy(), sequence.logprobs_T.copy()
        policy_step_T = sequence.policy_step_T.copy()
        keys, ids = prefix_keys(sequence.tokens_T), sequence.tokens_T.astype(ID).tobytes()
        generations: list[GenerationRecord] = []
        missing: list[tuple[int, int]] = []
        truncated = False
        for start, end in generated_spans(sequence.generated_T):
            parts = list(self._sampled_parts(keys, ids, (start, end), sequence.logprobs_T, received_at))
            known_T = ~np.isnan(logprobs_T[start:end])
            if parts or known_T.any():
                generated_T[start:end] = False if parts else known_T
            else:
                missing.append((start, end))
            truncated = bool(parts and parts[-1].generation.truncated)
            for position, length, generation in parts:
                here = slice(position, position + length)
                generated_T[here] = True
                logprobs_T[here] = np.frombuffer(generation.logprobs, np.float32)[:length]
                policy_step_T[here] = generation.policy_step
                generations.append(generation)
        attributed = replace(
            sequence, generated_T=generated_T, logprobs_T=logprobs_T, policy_step_T=policy_step_T, truncated=truncated
        )
        return Attribution(attributed, tuple(missing), tuple(generations))

    def _sampled_parts(
        self, keys: Ints, ids: bytes, span: tuple[int, int], reported_T: Floats, received_at: float
    ) -> Iterator[_Part]:
        """Walk along a span: wherever a recorded prompt ends and its output follows, that part was sampled."""
        position, end = span
        while position < end:
            part = None
            of_prompt = self._by_prompt.get(int(keys[position]))
            if of_prompt:
                rest = ids[position * ID.itemsize : end * ID.itemsize]
                part = _explanation(of_prompt, rest, position, reported_T, received_at)
            if part:
                yield part
            position = part.start + part.length if part else position + 1

    def _remember(self, generation: GenerationRecord) -> None:
        self._in_order.append(generation)
        self._by_prompt.setdefault(generation.prompt_key, []).append(generation)
        self._bytes += generation.size
        while self._bytes > self._capacity_bytes and len(self._in_order) > 1:
            self._forget(self._in_order.popleft())

    def _forget(self, generation: GenerationRecord) -> None:
        self._bytes -= generation.size
        of_prompt = self._by_prompt[generation.prompt_key]
        of_prompt.remove(generation)
        if not of_prompt:
            del self._by_prompt[generation.prompt_key]


def generated_spans(generated_T: Bools) -> Iterator[tuple[int, int]]:
    """The maximal runs [start, end) of generated positions: one per turn."""
    marks = generated_T.tobytes()
    start = marks.find(_GENERATED)
    while start >= 0:
        end = marks.find(_NOT_GENERATED, start)
        end = len(marks) if end < 0 else end
        yield start, end
        start = marks.find(_GENERATED, end)


_GENERATED, _NOT_GENERATED = b"\1", b"\0"  # in the bytes of a boolean array


def prefix_keys(tokens_T: Ints) -> Ints:
    """A 64-bit key of each prefix, [T+1]: the wrapping sum of (position, token), mixed as in splitmix64.

    Two of 100,000 prompts share a key in one of about a billion ledgers, which matters only if their outputs match too.
    """
    mixed_T = tokens_T.astype(np.uint64)
    mixed_T += _positions(len(tokens_T))
    for multiplier in _MULTIPLIERS:  # Steele, Lea, Flood 2014
        mixed_T ^= mixed_T >> _SHIFT
        mixed_T *= multiplier
    keys = np.zeros(len(tokens_T) + 1, np.uint64)
    np.cumsum(mixed_T, out=keys[1:])
    return keys.view(np.int64)


_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFT = np.uint64(30)


@lru_cache(maxsize=256)
def _positions(length: int) -> npt.NDArray[np.uint64]:
    """1, 2, ... in the upper half of each word; token ids are in the lower half."""
    return np.arange(1, length + 1, dtype=np.uint64) << np.uint64(32)


def _explanation(
    of_prompt: Sequence[GenerationRecord], rest: bytes, position: int, reported_T: Floats, received_at: float
) -> _Part | None:
    """The generation that explains most of `rest`: its output is a prefix of it, or extends beyond it.

    Those sampled after `received_at` count only if there is no other: the api's clock may be another machine's.
    Outputs repeat, even across policy steps: among equals the one whose logprobs are nearest to the reported ones, else
    the newest.
    """
    if same := _reported_as_sampled(of_prompt, rest, reported_T[position:], received_at):
        return _Part(position, len(rest) // ID.itemsize, same)
    fitting = [one for one in of_prompt if rest.startswith(one.output) or one.output.startswith(rest)]
    if not fitting:
        return None
    candidates = [one for one in fitting if one.sampled_at <= received_at] or fitting
    longest = max(min(len(one.output), len(rest)) for one in candidates)
    equals = [one for one in candidates if min(len(one.output), len(rest)) == longest]
    length = longest // ID.itemsize
    if len(equals) == 1:
        return _Part(position, length, equals[0])
    reported = reported_T[position : position + length]
    if np.isnan(reported).any():
        return _Part(position, length, equals[-1])
    return _Part(position, length, min(reversed(equals), key=lambda one: _distance(one, reported)))


def _reported_as_sampled(
    of_prompt: Sequence[GenerationRecord], rest: bytes, reported_T: Floats, received_at: float
) -> GenerationRecord | None:
    """The newest generation that is all of `rest`, with just the reported logprobs. Most are found here, and at once:
    a prompt that was asked a hundred times makes the search for the nearest one slow.
    """
    logprobs = reported_T[: len(rest) // ID.itemsize].astype(np.float32).tobytes()
    equal = (
        one
        for one in reversed(of_prompt)
        if one.logprobs == logprobs and one.output == rest and one.sampled_at <= received_at
    )
    return next(equal, None)


def _distance(generation: GenerationRecord, reported_T: Floats) -> float:
    logprobs_T = np.frombuffer(generation.logprobs, np.float32)[: len(reported_T)]
    return float(np.abs(logprobs_T - reported_T).max())
