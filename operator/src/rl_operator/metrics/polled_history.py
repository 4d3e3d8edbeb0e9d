"""The polled history of one attempt: its points as its trainer's `/history` last returned them, a few kB each."""

import zlib
from collections.abc import Sequence

import orjson

from rl_operator.status.observed.history import HISTORY_METRICS, Point, joined, thinned
from rl_operator.status.observed.observation import TrainerStatus

REREAD_SHARE = 0.05
"""The share of the run's steps after which the history is read again."""

LAST_PHASES = ("saving", "done")
"""Of a trainer that will soon stop responding."""


class PolledHistory:
    """Compressed, a column per metric: a full history is 3 to 8 kB, a thousand of them less than 10 MB."""

    __slots__ = ("_packed", "_read_at")

    def __init__(self) -> None:
        self._packed = b""
        self._read_at: tuple[int, bool] | None = None

    def due(self, status: TrainerStatus) -> bool:
        """Whether the history is to be read now: at the start, by steps, and before the end."""
        if not status.step:
            return False
        now = _moment(status)
        if self._read_at is None or self._read_at == now:
            return self._read_at is None
        step, last = self._read_at
        return now[1] != last or abs(now[0] - step) >= REREAD_SHARE * status.total_steps

    def take(self, status: TrainerStatus, points: Sequence[Point]) -> None:
        """A restarted trainer knows only its own steps: the earlier points are kept."""
        self._read_at = _moment(status)
        self._packed = _pack(thinned(joined(self.points, points)))

    @property
    def points(self) -> tuple[Point, ...]:
        return _unpack(self._packed) if self._packed else ()

    def __bool__(self) -> bool:
        return bool(self._packed)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self._packed)


_COLUMNS = ("step", *HISTORY_METRICS)


def _pack(points: Sequence[Point]) -> bytes:
    columns = [[point.get(name) for point in points] for name in _COLUMNS]
    return zlib.compress(orjson.dumps(columns), level=9)


def _unpack(packed: bytes) -> tuple[Point, ...]:
    rows = zip(*orjson.loads(zlib.decompress(packed)), strict=True)
    return tuple({name: value for name, value in zip(_COLUMNS, row, strict=True) if value is not None} for row in rows)


def _moment(status: TrainerStatus) -> tuple[int, bool]:
    return status.step, status.phase in LAST_PHASES
