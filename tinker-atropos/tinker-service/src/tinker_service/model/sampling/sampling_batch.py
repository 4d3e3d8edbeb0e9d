"""Continuous batching: one running batch that sequences of any request and sampler join and leave at any token.

A step is one forward pass over the next token of every running sequence and a chunk of the prompts that are being
read. Memory is bounded: a prompt waits until its sequences fit, and if running ones outgrow the bound, the newest are
set back and read again later (as in vLLM: Kwon et al. 2023, arXiv:2309.06180).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch

from tinker_service.model.lora import AdapterTokens, LoraAdapter, LoraModel
from tinker_service.model.packed_attention import Piece, packed_attention
from tinker_service.model.sampling.sample_jobs import Decode, Row, SampleJob
from tinker_service.model.sampling.sequence_cache import (
    ROWS_GROW_BY,
    TOKENS_PER_STEP,
    CachePart,
    CacheShape,
    PromptGroup,
    UnreadPrompt,
)
from tinker_service.model.sampling.token_choice import draw
from tinker_service.service_errors import RequestError

Value = TypeVar("Value")


def next_logits(
    model: LoraModel, parts: Sequence[CachePart], groups: Sequence[PromptGroup], device: torch.device
) -> torch.Tensor:
    """Logits [B, V] of the next tokens: of the parts' rows in order, then of the rows whose prompts end here.

    A sequence's are the same bits whatever else is in the batch, where a matrix product treats all its rows alike. On
    CPUs it does if their number is a multiple of ROW_BLOCK, so that all rows are padded to one.
    """
    tokens, positions, adapters = _packed(parts, groups)
    with_logits, sequences = _wanted(parts, groups)
    shares = _shares(adapters, with_logits, device)
    pieces = _begun(parts, groups)
    with model.mixed(shares) as mixed, packed_attention(mixed):
        logits_1BV = mixed(
            input_ids=torch.tensor([tokens], device=device),
            position_ids=torch.tensor([positions], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(with_logits, dtype=torch.long, device=device),
            pieces=pieces,
        ).logits
    logits_BV: torch.Tensor = logits_1BV[0]
    if sequences == [*range(len(sequences))]:
        return logits_BV[: len(sequences)]
    return logits_BV[torch.tensor(sequences, device=device)]


ROW_BLOCK = 16


def _padded(values: list[Value]) -> list[Value]:
    """With the last value repeated."""
    return values + values[-1:] * (-len(values) % ROW_BLOCK)


def _begun(parts: Sequence[CachePart], groups: Sequence[PromptGroup]) -> list[Piece]:
    pieces: list[Piece] = []
    first = 0
    for part in parts:
        part.begin_step(first)
        pieces.append(part)
        first += part.sequences
    for group in groups:
        group.cache.begin_step(first)
        pieces.append(group.cache)
        first += group.cache.tokens
    return pieces


def _packed(
    parts: Sequence[CachePart], groups: Sequence[PromptGroup]
) -> tuple[list[int], list[int], list[LoraAdapter | None]]:
    """For each token in the packed row: itself, its position, and the adapter that works on it."""
    rows = [row for part in parts for row in part.rows]
    tokens = [row.continuation.tokens[-1] for row in rows]
    positions = [length for part in parts for length in part.lengths]
    adapters = [row.job.adapter for row in rows]
    for group in groups:
        chunk, new = group.chunk, group.cache.new_tokens
        tokens += chunk
        positions += [*range(group.cache.done, group.cache.done + new)] * len(group.prompts)
        adapters += [group.adapter] * len(chunk)
    return _padded(tokens), _padded(positions), _padded(adapters)


def _wanted(parts: Sequence[CachePart], groups: Sequence[PromptGroup]) -> tuple[list[int], list[int]]:
    """Which tokens of the packed row get logits, and for each sequence that gets a token, whose of these it takes."""
    running = sum(part.sequences for part in parts)
    with_logits, sequences, start = [*range(running)], [*range(running)], running
    for group in groups:
        new = group.cache.new_tokens
        if group.ends_here:
            first = len(with_logits)
            with_logits += [start + (index + 1) * new - 1 for index in range(len(group.prompts))]
            sequences += [first + index for index in group.sources]
        start += new * len(group.prompts)
    return _padded(with_logits), sequences


def _shares(
    adapters: Sequence[LoraAdapter | None], with_logits: Sequence[int], device: torch.device
) -> list[AdapterTokens]:
    """The adapters in the row, each with its places; one that works on everything needs none."""
    different = {id(adapter): adapter for adapter in adapters}
    if len(different) == 1:
        return [AdapterTokens(adapter) for adapter in different.values() if adapter]
    shares = []
    for adapter in filter(None, different.values()):
        tokens = [index for index, other in enumerate(adapters) if other is adapter]
        logits = [place for place, index in enumerate(with_logits) if adapters[index] is adapter]
        places = (torch.tensor(_padded(indices), dtype=torch.long, device=device) for indices in (tokens, logits))
        shares.append(AdapterTokens(adapter, *places))
    return shares


HEADROOM = 0.1  # of the memory: new sequences leave it to those that run


class SamplingBatch:
    """Not thread-safe. What is wrong with a request ends its job alone."""

    def __init__(self, model: LoraModel, decode: Decode, memory: int) -> None:
        """`memory` in bytes bounds keys, values and logits; the model itself is not counted."""
        self._model, self._decode, self._memory = model, decode, memory
        self._shape = CacheShape.of(model.model)
        vocabulary = int(model.model.config.get_text_config().vocab_size)
        self._logits_bytes = vocabulary * self._shape.dtype.itemsize  # of one sequence
        self._jobs: dict[SampleJob, None] = {}  # oldest first
        self._unread: OrderedDict[tuple[int, tuple[int, ...]], UnreadPrompt] = OrderedDict()
        self._reading: list[PromptGroup] = []
        self._parts: dict[int, CachePart] = {}
        self._is_full = False  # of memory that is not ours to count: nothing is admitted until a job has ended

    @property
    def jobs(self) -> Sequence[SampleJob]:
        """Those that are not finished, oldest first."""
        return list(self._jobs)

    @property
    def running(self) -> int:
        """Sequences that get a token at each step. This and the next two may be read on any thread."""
        return sum(part.sequences for part in list(self._parts.values()))

    @property
    def waiting(self) -> int:
        """Prompts that nobody has begun to read."""
        return len(self._unread)

    @property
    def cache_bytes(self) -> int:
        """What keys and values take."""
        prompts = sum(group.cache.size for group in self._reading)
        return prompts + sum(part.size for part in list(self._parts.values()))

    def add(self, job: SampleJob) -> None:
        """The job joins at the next step."""
        self._jobs[job] = None
        for continuation in job.continuations:
            self._wait(Row(job, continuation))

    @torch.inference_mode()
    def step(self) -> list[SampleJob]:
        """One token for every running sequence. Returns the jobs that it finished.

        Raises torch.OutOfMemoryError; no token is lost then: call `make_room` and go on.
        """
        self._drop_unwanted()
        self._grow()
        self._admit()
        budget = TOKENS_PER_STEP
        for group in self._reading:
            budget = group.take(budget)
        groups = [group for group in self._reading if group.cache.new_tokens]
        parts = [part for part in self._parts.values() if part.rows]
        if not parts and not groups:
            return []
        logits_BV = next_logits(self._model, parts, groups, self._shape.device)
        read = [group for group in groups if group.ends_here]
        rows = _rows(parts, read)
        drawn = draw(logits_BV, [row.continuation for row in rows])
        self._reserve(read)  # the last that can fail
        for index, row in enumerate(rows):
            row.continuation.append(drawn.tokens[index], drawn.logprobs[index], drawn.top.get(index), self._decode)
        for part in parts:
            part.end_step()
        for group in groups:
            group.cache.end_step()
        return self._sorted_out(rows, read)

    def make_room(self, error: Exception) -> None:
        """After torch.OutOfMemoryError: the newest running job starts again when another one has ended. One that runs
        alone fails with `error`.
        """
        running = {row.job for row in _rows(self._parts.values(), self._reading)}
        if len(running) < 2:
            for job in running:
                self.fail(job, error)
            return
        newest = max(running, key=list(self._jobs).index)
        self._remove(lambda row: row.job is newest)
        newest.restart()
        for continuation in newest.continuations:
            self._wait(Row(newest, continuation))
        self._is_full = True

    def fail(self, job: SampleJob, error: Exception) -> None:
        """End a job without an answer."""
        self._remove(lambda row: row.job is job)
        self._end(job)
        job.future.set_exception(error)

    # --- the steps of a step ---------------------------------------------------------------------------------------

    def _drop_unwanted(self) -> None:
        for job in self.jobs:
            if refusal := job.refusal():
                self.fail(job, refusal)

    def _grow(self) -> None:
        """Move rows that have filled their part; if memory does not suffice, set back the newest rows."""
        for capacity in sorted(self._parts, reverse=True):
            while full := [row for row, length in enumerate(self._parts[capacity].lengths) if length == capacity]:
                larger = self._part(capacity + 1)
                if self._used + larger.growth(len(full)) <= self._memory:
                    self._parts[capacity].move(full, larger)
                elif not self._set_back_newest_row():
                    self._refuse(self._parts[capacity].rows[0].job)
        self._parts = {capacity: part for capacity, part in self._parts.items() if part.rows}

    def _admit(self) -> None:
        """Begin to read the prompts that have waited longest, as far as their rows fit."""
        if self._is_full or not self._unread:
            return
        begun: dict[tuple[int, int], list[UnreadPrompt]] = {}
        planned = self._used
        limit = self._memory * (1 - HEADROOM)
        while self._unread:
            key, prompt = next(iter(self._unread.items()))
            length = len(prompt.context)
            own, per_row = length * self._shape.position_bytes, self._row_bytes(length + 1)
            rows = int((limit - planned - own) // per_row)
            if rows < 1:
                if not planned and own + per_row > self._memory:
                    self._refuse(prompt.rows[0].job)
                    continue
                if planned:
                    break
                rows = 1
            if rows >= len(prompt.rows):
                del self._unread[key]
            else:
                prompt = prompt.split(rows)
            planned += own + per_row * len(prompt.rows)
            begun.setdefault((id(prompt.adapter), length), []).append(prompt)
        for (_, length), prompts in begun.items():
            at_once = max(1, TOKENS_PER_STEP // length)
            for start in range(0, len(prompts), at_once):
                self._reading.append(PromptGroup(self._shape, prompts[start : start + at_once]))

    def _reserve(self, read: Sequence[PromptGroup]) -> None:
        rows: dict[int, int] = {}
        for group in read:
            capacity = self._shape.part_capacity(group.length + 1)
            rows[capacity] = rows.get(capacity, 0) + len(group.rows)
        for capacity, needed in rows.items():
            self._part(capacity).reserve(needed)

    def _sorted_out(self, drawn: Sequence[Row], read: Sequence[PromptGroup]) -> list[SampleJob]:
        """Finished rows leave, new ones move in beside the running ones; returns the jobs that have none left."""
        for part in self._parts.values():
            part.remove([index for index, row in enumerate(part.rows) if row.continuation.stop_reason])
        for group in read:
            self._reading.remove(group)
            pairs = zip(group.rows, group.sources, strict=True)
            new = [(row, source) for row, source in pairs if not row.continuation.stop_reason]
            if new:
                rows, sources = zip(*new, strict=True)
                self._part(group.length + 1).add(rows, group.cache.stored, sources, group.length)
        for row in drawn:
            row.job.unfinished -= bool(row.continuation.stop_reason)
        finished = [job for job in dict.fromkeys(row.job for row in drawn) if not job.unfinished]
        for job in finished:
            self._end(job)
        return finished

    def _end(self, job: SampleJob) -> None:
        del self._jobs[job]
        self._is_full = False

    # --- rows and memory -------------------------------------------------------------------------------------------

    @property
    def _used(self) -> int:
        """Bytes of keys, values and logits, with what the rows of the prompts that are being read will take."""
        prompts = sum(group.cache.size + len(group.rows) * self._row_bytes(group.length + 1) for group in self._reading)
        parts = self._parts.values()
        return prompts + sum(max(part.size, part.sequences * self._row_bytes(part.capacity)) for part in parts)

    def _row_bytes(self, positions: int) -> int:
        part = self._shape.part_capacity(positions) * self._shape.position_bytes
        return int(part * ROWS_GROW_BY) + self._logits_bytes

    def _part(self, positions: int) -> CachePart:
        capacity = self._shape.part_capacity(positions)
        if capacity not in self._parts:
            self._parts[capacity] = CachePart(self._shape, capacity)
        return self._parts[capacity]

    def _wait(self, row: Row, *, first: bool = False) -> None:
        """Rows that continue the same tokens with the same sampler wait together: these are read once."""
        key = (id(row.job.adapter), row.context)
        prompt = self._unread.setdefault(key, UnreadPrompt(row.job.adapter, row.context, []))
        prompt.rows.append(row)
        if first:
            self._unread.move_to_end(key, last=False)

    def _set_back_newest_row(self) -> bool:
        """False if there is only one."""
        rows = _rows(self._parts.values(), self._reading)
        if len(rows) < 2:
            return False
        ages = {job: age for age, job in enumerate(self._jobs)}
        newest = max(rows, key=lambda row: ages[row.job])
        self._remove(lambda row: row is newest)
        self._wait(newest, first=True)
        return True

    @torch.inference_mode()
    def _remove(self, leaves: Callable[[Row], bool]) -> None:
        for part in self._parts.values():
            part.remove([index for index, row in enumerate(part.rows) if leaves(row)])
        for group in self._reading:
            group.remove(leaves)
        self._reading = [group for group in self._reading if group.rows]
        for key, prompt in list(self._unread.items()):
            prompt.rows = [row for row in prompt.rows if not leaves(row)]
            if not prompt.rows:
                del self._unread[key]

    def _refuse(self, job: SampleJob) -> None:
        tokens = len(job.request.prompt) + max(len(row.tokens) for row in job.continuations)
        memory = f"the {self._memory / 2**20:.3g} MiB that the service has for sampling"
        change = "send a shorter prompt, set a lower max_tokens, or start the service with a larger --memory"
        self.fail(job, RequestError(f"a sequence of {tokens} tokens does not fit into {memory}: {change}"))


def _rows(parts: Iterable[CachePart], groups: Iterable[PromptGroup]) -> list[Row]:
    return [row for part in parts for row in part.rows] + [row for group in groups for row in group.rows]
