"""From the bytes of a log to its lines: however long a line is, no more of it is kept than is ever read. Pure."""

from collections.abc import Iterator
from typing import Final

LONGEST_LINE: Final = 512 * 1024
"""Bytes. The longest line that is read: a step of a trial, 64 answers of 500 characters, escaped as JSON."""

CUT: Final = b" [cut: the line is longer]"


class LineCutter:
    """A line ends with a line feed, as in containers' logs. Of a progress bar that overwrites itself for longer than a
    line may be, the latest output is kept.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = b""
        self._is_cut = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that the chunk ends, each with its end."""
        *ended, begun = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            yield self._taken() + b"\n"
        self._add(begun)

    def rest(self) -> Iterator[bytes]:
        """The last line, if it has no line feed."""
        if line := self._taken():
            yield line

    def _add(self, part: bytes) -> None:
        if self._is_cut and b"\r" not in part:
            return
        line = self._kept + part
        if len(line) > self._longest:
            line = line.rstrip(b"\r").rpartition(b"\r")[2]
            self._is_cut = len(line) > self._longest
        self._kept = line[: self._longest]

    def _taken(self) -> bytes:
        line = self._kept + (CUT if self._is_cut else b"")
        self._kept, self._is_cut = b"", False
        return line
