"""Where the seconds of a step go."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

PARTS = ("waiting", "preparing", "forward_backward", "optim_step", "snapshot", "reporting", "saving")


class Stopwatch:
    """Splits time without a gap: what passed since the last word goes to the parts that are named now.

    So the parts of a lap add up to it. A step's own reporting and saving come after its metrics: they are named in the
    next step's lap.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_lap = self._named_until = clock()
        self._parts: dict[str, float] = defaultdict(float)

    def spent(self, part: str, within: Mapping[str, float] | None = None) -> None:
        """What passed was `part`, apart from the parts `within` it, whose seconds are known."""
        now = self._clock()
        known = dict(within or {})
        self._parts[part] += now - self._named_until - sum(known.values())
        for name, seconds in known.items():
            self._parts[name] += seconds
        self._named_until = now

    def lap(self) -> dict[str, float]:
        """`time/<part>` of every part since the last lap and their sum `time/step`; begins the next lap."""
        self.spent("preparing")
        metrics = {f"time/{part}": self._parts[part] for part in PARTS}
        metrics["time/step"] = self._named_until - self._began_lap
        self._parts.clear()
        self._began_lap = self._named_until
        return metrics
