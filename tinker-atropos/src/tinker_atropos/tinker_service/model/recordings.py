"""What is recorded of samples for training: each sequence under its id, with the logprobs that it was drawn with."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tinker_atropos.tinker_service.model.sampling.continuations import Continuation
from tinker_atropos.tinker_service.request_errors import MissingError

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
