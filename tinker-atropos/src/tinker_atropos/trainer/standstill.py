"""When and why training stands still though nothing is wrong with the run: a pause, or a process that was frozen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rl_contract.trainer_messages import Pause, PauseCause
from tinker_atropos.running_time import running_seconds


@dataclass(slots=True)
class Standstill:
    """`now` is the clock that people read, `clock` one that never jumps, and stands still while the process does."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = running_seconds
    resumed_at: str | None = None
    _pauses: dict[PauseCause, tuple[Pause, float]] = field(default_factory=dict)
    _seconds: float = 0.0
    _lap: float = 0.0

    @property
    def pause(self) -> Pause | None:
        """Why training stands still now: of several pauses, the one that began first."""
        return next((pause for pause, _ in self._pauses.values()), None)

    @property
    def seconds(self) -> float:
        """How long it has been paused so far, all pauses together."""
        return self._seconds + self._now_paused()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._lap = self._lap, self.seconds
        return self._lap - before

    def begin(self, cause: PauseCause, reason: str, ago: float = 0.0) -> None:
        """A pause begins, so many seconds ago, or lasts and has this reason now."""
        pause, began = self._pauses.get(cause, (None, self.clock() - ago))
        since = pause.since if pause else self._moment(ago)
        self._pauses[cause] = Pause(cause=cause, since=since, reason=reason), began

    def end(self, cause: PauseCause) -> None:
        """Nothing happens if there is no such pause."""
        if cause not in self._pauses:
            return
        paused = self._now_paused()
        del self._pauses[cause]
        self._seconds += paused - self._now_paused()
        self.resumed_at = self._moment()

    def froze(self, seconds: float) -> None:
        """The process did not run for so long."""
        self._seconds += seconds
        self.resumed_at = self._moment()

    def _now_paused(self) -> float:
        first = min((began for _, began in self._pauses.values()), default=None)
        return 0.0 if first is None else self.clock() - first

    def _moment(self, ago: float = 0.0) -> str:
        return (self.now() - timedelta(seconds=ago)).isoformat(timespec="seconds")
