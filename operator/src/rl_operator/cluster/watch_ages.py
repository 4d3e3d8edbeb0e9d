"""How long each watch has been silent, kopf's and our own alike: seen from the bytes that its stream has brought.

The API server sends a bookmark a minute. A watch that is silent for minutes does not work, whether its stream stays
open or is opened again and again in vain.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

AWAY_AFTER = 0.4
"""The part of the patience after which an API server that did not answer counts as away."""


class Stream(Protocol):
    """aiohttp's StreamReader, as far as it matters here."""

    @property
    def total_bytes(self) -> int: ...


class WatchAges:
    """Looked at by probes and scrapes; between two looks nothing is computed."""

    def __init__(self, patience_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._streams: dict[str, tuple[Stream, int]] = {}
        self._heard_at: dict[str, float] = {}
        self._answered_at = float("-inf")
        self._answering_since = float("-inf")

    # --- what calls tell ----------------------------------------------------------------------------------------
    def expect(self, plurals: Iterable[str]) -> None:
        """These are watched from now on, whether or not a stream is ever opened."""
        self._heard_at |= dict.fromkeys(plurals, self._clock())

    def opened(self, plural: str, stream: Stream) -> None:
        """A watch was answered: that alone is no sign of life."""
        self._look(plural)
        self._streams[plural] = (stream, 0)  # the first event may be here already

    def answered(self) -> None:
        """The API server answered some call."""
        now = self._clock()
        if self._away(now):
            self._answering_since = now
        self._answered_at = now

    # --- what probes ask ----------------------------------------------------------------------------------------
    def silent_seconds(self) -> Mapping[str, float]:
        """Since when the last event or bookmark came, by plural."""
        for plural in self._streams:
            self._look(plural)
        now = self._clock()
        return {plural: now - heard_at for plural, heard_at in self._heard_at.items()}

    def stale(self) -> Mapping[str, float]:
        """The watches that were silent for longer than the patience while the API server answered other calls."""
        now = self._clock()
        if self._away(now) or now - self._answering_since < self._patience:
            return {}
        return {plural: seconds for plural, seconds in self.silent_seconds().items() if seconds > self._patience}

    def _away(self, now: float) -> bool:
        return now - self._answered_at > self._patience * AWAY_AFTER

    def _look(self, plural: str) -> None:
        """Note whether the stream has brought anything since the last look."""
        if plural not in self._streams:
            return
        stream, seen = self._streams[plural]
        if stream.total_bytes > seen:
            self._streams[plural] = (stream, stream.total_bytes)
            self._heard_at[plural] = self._clock()
