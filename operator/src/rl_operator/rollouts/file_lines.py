"""From a file's bytes to its lines, whatever is in it: torn frames, garbage, and too much of anything. Pure.

A file is decompressed piece by piece, and no more than one line of it is in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from zstandard import ZstdDecompressor, ZstdError

from rl_contract.rollout_records import BadLineError

Record = TypeVar("Record")

LONGEST_LINE: Final = 32 * 2**20
"""Bytes. A group of 16 rollouts with 32,000 tokens each has about 16 million. As objects, the worst line takes 40 times
its length.
"""

SHORT_LINE: Final = 8 * 2**20
"""What a server reads, which has less memory than its callers."""

MOST_TIMES: Final = 500
"""How much larger a file may become, from 256 MiB on. Rollouts become 4 times as large, and equal ones 100 times."""

ALWAYS_READ: Final = 256 * 2**20

LARGEST_WINDOW: Final = 128 * 2**20
"""Bytes of memory that a frame may ask for: what `zstd` itself accepts."""

MOST_TORN: Final = 100

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""What each frame begins with."""

_PIECE: Final = 1024
"""Bytes that are decompressed at once. They become 32 MiB at most."""


@dataclass
class FileFaults:
    """What of a file could not be read. Counted while its lines are read."""

    longest_line: int = LONGEST_LINE
    """Bytes. Longer ones are left out."""

    torn_frames: int = 0
    bad_lines: int = 0
    long_lines: int = 0
    is_empty: bool = False
    is_cut: bool = False
    """It becomes larger than any file of ours: the rest was left out."""

    first: str = ""
    """What is wrong with the first of the bad lines."""

    whole: int = 0
    """Bytes up to the end of the last frame that is whole: what follows may still be written."""

    @property
    def count(self) -> int:
        return self.torn_frames + self.bad_lines + self.long_lines + self.is_empty + self.is_cut

    def sentences(self) -> Iterator[str]:
        if self.is_empty:
            yield "it is empty: nothing is written yet, or the disk was full"
        if self.torn_frames:
            them = "it" if self.torn_frames == 1 else "them"
            yield f"{_count(self.torn_frames, 'frame')} torn or damaged: what was in {them} is missing"
        if self.bad_lines:
            yield f"{_count(self.bad_lines, 'line')} not readable and left out; the first: {self.first}"
        if self.long_lines:
            yield f"{_count(self.long_lines, 'line')} longer than {self.longest_line / 2**20:g} MiB and left out"
        if self.is_cut:
            yield f"it is more than {MOST_TIMES} times as large as its file: the rest was left out"


def _count(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number:,} {what}s are"


@dataclass
class _Lines:
    """Puts the lines of a frame together from pieces."""

    faults: FileFaults
    _begun: bytearray = field(default_factory=bytearray)
    _skips: bool = False

    def add(self, piece: bytes) -> Iterator[bytes]:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._extend(piece, start, end)
            if self._begun and not self._skips:
                yield bytes(self._begun)
            self._begun.clear()
            self._skips = False
            start = end + 1
        self._extend(piece, start, len(piece))

    def _extend(self, piece: bytes, start: int, end: int) -> None:
        if self._skips:
            return
        if len(self._begun) + end - start <= self.faults.longest_line:
            self._begun += memoryview(piece)[start:end]
            return
        self.faults.long_lines += 1
        self._begun.clear()
        self._skips = True


def lines_of(content: bytes, faults: FileFaults) -> Iterator[bytes]:
    """The whole lines, without their ends. Never raises for what is in the file: `faults` says what was left out.

    A line never spans frames. After a torn frame, reading continues where the next one seems to begin.
    """
    faults.is_empty = not content
    view, room, start = memoryview(content), max(ALWAYS_READ, MOST_TIMES * len(content)), 0
    while 0 <= start < len(content):
        frame, lines, end = ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj(), _Lines(faults), start
        with suppress(ZstdError):
            while not frame.eof and end < len(content):
                given = view[end : end + _PIECE]
                piece = frame.decompress(given)
                end += len(given) - len(frame.unused_data)
                yield from lines.add(piece)
                room -= len(piece)
                if room < 0:
                    faults.is_cut = True
                    return
        if frame.eof:
            faults.whole = start = end
        else:
            faults.torn_frames += 1
            if faults.torn_frames >= MOST_TORN:
                return
            start = content.find(_MAGIC, start + 1)


def records_of(content: bytes, faults: FileFaults, read: Callable[[bytes], Record]) -> Iterator[tuple[bytes, Record]]:
    """The lines that can be read, and what `read` makes of them; the others are counted."""
    for line in lines_of(content, faults):
        try:
            record = read(line)
        except BadLineError as error:
            faults.bad_lines += 1
            faults.first = faults.first or str(error)
        else:
            yield line, record
