"""Where the time of a step went."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

OWN_PARTS = ("preparing", "reporting")
"""What a step waits for in this process. The other parts are spent on rollouts and on the backend."""

PARTS = ("waiting", "base_logprobs", "forward", "forward_backward", "optim_step", "snapshot", "saving", *OWN_PARTS)


class Stopwatch:
    """Splits time without gaps: the time since the last call goes to the parts that are named now.

    So the parts of a lap add up to it. A step's own reporting and saving come after its metrics: they count in the next
    step's lap.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_lap = self._named_until = clock()
        self._parts: dict[str, float] = defaultdict(float)

    def spent(self, part: str, within: Mapping[str, float] | None = None) -> None:
        """The time since the last call was `part`, except for the parts `within` it, whose seconds are known."""
        now = self._clock()
        known = dict(within or {})
        self._parts[part] += now - self._named_until - sum(known.values())
        for name, seconds in known.items():
            self._parts[name] += seconds
        self._named_until = now

    def lap(self) -> dict[str, float]:
        """`time/<part>` of every part since the last lap, their sum `time/step`, and `time/own_share` of it; begins the
        next lap.
        """
        self.spent("preparing")
        metrics = {f"time/{part}": self._parts[part] for part in PARTS}
        metrics["time/step"] = step = self._named_until - self._began_lap
        metrics["time/own_share"] = sum(self._parts[part] for part in OWN_PARTS) / step if step else 0.0
        self._parts.clear()
        self._began_lap = self._named_until
        return metrics
