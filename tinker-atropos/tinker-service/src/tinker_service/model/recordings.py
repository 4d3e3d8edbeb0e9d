"""What is recorded of samples for training: each sequence under its id, with the logprobs that it was drawn with.

A datum's provenance says which recorded sequence each of its tokens is of; its targets get what was recorded of them.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tinker_service.model.sampling.sample_jobs import Continuation
from tinker_service.model.training import TrainingDatum
from tinker_service.service_errors import MissingError, RequestError

KEPT_SECONDS = 86_400.0  # Tinker's: a day, which begins again with each training request that uses the sequence
MAX_TOKENS = 2**24  # of all sampled sequences and their prompts: up to 270 MB, at 16 bytes a token, 8 in a prompt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSequence:
    """One sampled sequence: its prompt [P], its tokens [T], and their logprobs [T] in the distribution sampled from."""

    session_id: str
    prompt: Integers
    tokens: Integers
    logprobs: npt.NDArray[np.float64]


class Recordings:
    """Sequences by id, in memory. Written on the worker's thread, read on the event loop."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[RecordedSequence, float]] = {}  # with its last use; least recently used first
        self._sharing: Counter[int] = Counter()  # sequences that are kept, by the id of their request's prompt
        self._tokens = 0

    def record(
        self, sequence_ids: Sequence[str], session_id: str, prompt: Sequence[int], sampled: Sequence[Continuation]
    ) -> None:
        """Keep one request's sequences, which share the prompt. The least recently used ones go when there are too many
        tokens.
        """
        prompt_P = np.array(prompt, np.int64)
        with self._lock:
            for sequence_id, row in zip(sequence_ids, sampled, strict=True):
                tokens, logprobs = np.array(row.tokens, np.int64), np.array(row.logprobs, np.float64)
                self._kept[sequence_id] = RecordedSequence(session_id, prompt_P, tokens, logprobs), time.monotonic()
                self._tokens += len(tokens)
            if sampled:
                self._sharing[id(prompt_P)] = len(sampled)
                self._tokens += len(prompt_P)
            while self._tokens > self._max_tokens:
                self._forget(next(iter(self._kept)))

    def use(self, sequence_id: str, session_id: str) -> RecordedSequence:
        """A sequence of a session. Raises MissingError if it is not (or no longer) recorded there."""
        with self._lock:
            sequence, _ = self._kept.pop(sequence_id, (None, 0.0))
            if sequence is not None:
                self._kept[sequence_id] = sequence, time.monotonic()
        if sequence is None or sequence.session_id != session_id:
            raise MissingError(
                f"sequence {sequence_id!r} is not recorded in this session (any more): sample from a client that was "
                f"made with record_stability_info=True, in the session that trains, and train on it within a day"
            )
        return sequence

    def end_session(self, session_id: str) -> None:
        with self._lock:
            for key in [key for key, (sequence, _) in self._kept.items() if sequence.session_id == session_id]:
                self._forget(key)

    def forget_expired(self, now: float) -> None:
        """`now` is from time.monotonic()."""
        with self._lock:
            for key in [key for key, (_, used_at) in self._kept.items() if used_at + KEPT_SECONDS <= now]:
                self._forget(key)

    def _forget(self, sequence_id: str) -> None:
        sequence, _ = self._kept.pop(sequence_id)
        self._tokens -= len(sequence.tokens)
        prompt = id(sequence.prompt)
        self._sharing[prompt] -= 1
        if not self._sharing[prompt]:
            del self._sharing[prompt]
            self._tokens -= len(sequence.prompt)


Find = Callable[[str], RecordedSequence]


@dataclass(frozen=True, slots=True)
class ProvenanceSpan:
    """`length` consecutive tokens: from `offset` on, in the prompt or (`sampled`) in the tokens of a sequence."""

    sequence_id: str
    sampled: bool
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Runs that tile a datum's input tokens, and others that tile its targets."""

    inputs: Sequence[ProvenanceSpan]
    targets: Sequence[ProvenanceSpan]


def with_recorded(index: int, datum: TrainingDatum, provenance: Provenance | None, find: Find) -> TrainingDatum:
    """The datum with `logprobs`, as they were when each target was sampled (0 elsewhere), and `sampled`, 1 for each
    sampled target.

    Raises RequestError if the claims are missing or wrong, NotFoundError if a sequence is not recorded.
    """
    field = f"data[{index}]"
    if provenance is None:
        raise RequestError(
            f"{field} does not say which recorded sequences its tokens are of: attach that with Datum.with_provenance, "
            f"and sample from a client that was made with record_stability_info=True"
        )
    _check_inputs(f"{field}.model_input", datum.tokens, provenance.inputs, find)
    targets, advantages = datum.inputs["target_tokens"], datum.inputs["advantages"]
    logprobs, sampled = np.zeros(targets.shape), np.zeros(targets.shape)
    for place, span in _tiled(f"{field}.loss_fn_inputs", provenance.targets, len(targets)):
        if span.sampled:  # other targets are not trained, and may be anything
            sequence = find(span.sequence_id)
            _check_tokens(
                f"{field}.loss_fn_inputs['target_tokens']", targets[place], _part(sequence.tokens, span), span
            )
            logprobs[place] = _part(sequence.logprobs, span)
            sampled[place] = 1.0
    if np.any((advantages != 0) & (sampled == 0)):
        raise RequestError(f"{field}.loss_fn_inputs['advantages'] is not 0 where the target was not sampled")
    return replace(datum, inputs={**datum.inputs, "logprobs": logprobs, "sampled": sampled})


def _check_inputs(field: str, tokens: npt.NDArray[np.int64], spans: Sequence[ProvenanceSpan], find: Find) -> None:
    for place, span in _tiled(field, spans, len(tokens)):
        sequence = find(span.sequence_id)
        recorded = sequence.tokens if span.sampled else sequence.prompt
        _check_tokens(field, tokens[place], _part(recorded, span), span)


def _tiled(field: str, spans: Sequence[ProvenanceSpan], length: int) -> list[tuple[slice, ProvenanceSpan]]:
    """Each span with its place in the field."""
    ends = np.cumsum([span.length for span in spans], dtype=np.int64).tolist()
    if not spans or ends[-1] != length:
        raise RequestError(f"the spans of {field} cover {ends[-1] if spans else 0} positions and it has {length}")
    return [(slice(end - span.length, end), span) for end, span in zip(ends, spans, strict=True)]


def _part(recorded: npt.NDArray[np.generic], span: ProvenanceSpan) -> npt.NDArray[np.generic]:
    """What the span names; shorter if it reaches past the end."""
    return recorded[span.offset : span.offset + span.length]


def _check_tokens(
    field: str, given: npt.NDArray[np.generic], recorded: npt.NDArray[np.generic], span: ProvenanceSpan
) -> None:
    if not np.array_equal(given, recorded):
        part = "sampled tokens" if span.sampled else "prompt"
        raise RequestError(
            f"{field} holds other tokens than its provenance says: positions {span.offset} to "
            f"{span.offset + span.length - 1} of the {part} of sequence {span.sequence_id!r}"
        )
