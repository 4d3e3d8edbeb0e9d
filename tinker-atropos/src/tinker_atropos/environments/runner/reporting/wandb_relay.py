"""A replacement for the module `wandb`: what an environment logs goes to the trajectory API, and from there to the one
W&B run that the trainer writes. An environment neither has nor needs a W&B key.
"""

import contextlib
import logging
import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import ModuleType
from typing import Any

from tinker_atropos.environments.items.held_out import fraction_metrics
from tinker_atropos.environments.rollout.sampled_work import SampledWork

MAX_RECORDS = 1_000
"""Records kept while the trajectory API does not answer; the oldest are dropped first."""

MAX_NAMES = 1_000
"""Of metrics that were warned about: environments choose them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportedMetrics:
    """One call of `POST /rl/metrics`. Of an evaluation, `metric` is the name in the environment of the held-out figure,
    and `temperature` what it was sampled at, if all was sampled at one.
    """

    metrics: dict[str, float]
    step: int | None
    source: str
    metric: str | None = None
    temperature: float | None = None

    def to_wire(self) -> dict[str, object]:
        of_figure = {"metric": self.metric, "temperature": self.temperature}
        known = {name: value for name, value in of_figure.items() if value is not None}
        return {"step": self.step, "metrics": self.metrics, "source": self.source, **known}


@dataclass
class MetricsQueue:
    """Records on their way to the trajectory API, from the environment's thread to the heartbeat's."""

    records: deque[ReportedMetrics] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    latest: dict[str, float] = field(default_factory=dict)
    _judged: tuple[str, SampledWork] | None = None
    _left_out: set[str] = field(default_factory=set)

    def put(
        self,
        metrics: Mapping[str, object],
        step: int | None,
        source: str,
        *,
        metric: str | None = None,
        temperature: float | None = None,
    ) -> None:
        numbers = dict(self._numbers(metrics))
        if self._judged is not None:
            suffix, sampled = self._judged
            for name in [name for name in numbers if name.endswith(suffix)]:
                numbers |= fraction_metrics(numbers[name], sampled.completions, name, effective_n=sampled.independent)
                step = sampled.step  # of the weights that were evaluated, whatever is trained by now
        if numbers:
            self.records.append(ReportedMetrics(numbers, step, source, metric, temperature))
            self.latest.update(numbers)

    @contextlib.contextmanager
    def judging(self, suffix: str, sampled: SampledWork) -> Iterator[None]:
        """While the block runs, a metric whose name ends with `suffix` is the result of what was sampled: it gets its
        interval and its n.
        """
        self._judged = (suffix, sampled)
        try:
            yield
        finally:
            self._judged = None

    def take_latest(self, suffix: str) -> float | None:
        """The last value whose name ends with `suffix` (atroposlib prepends `<name>_<k>_`), once."""
        for name in [name for name in self.latest if name.endswith(suffix)]:
            return self.latest.pop(name)
        return None

    def _numbers(self, metrics: Mapping[str, object]) -> Iterator[tuple[str, float]]:
        """The finite ones among the metrics. Tables and images are skipped; NaN and infinity, too, with a warning."""
        for name, value in metrics.items():
            if not isinstance(value, Real):
                continue
            if math.isfinite(value):
                yield str(name), float(value)
            elif name not in self._left_out and len(self._left_out) < MAX_NAMES:
                self._left_out.add(name)
                logger.warning("the metric %.200s is %s: it is left out each time that it is not finite", name, value)


def install(queue: MetricsQueue) -> None:
    """Make `import wandb` find the replacement. Must happen before atroposlib is imported."""
    module = ModuleType("wandb", "Relays `log` to the trajectory API; everything else is inert.")

    def log(data: Mapping[str, object], step: int | None = None, **_ignored: object) -> None:
        queue.put(data, step, "environment")

    inert = _Inert()
    module.__dict__.update(log=log, Table=_Inert, __getattr__=inert.__getattr__)
    sys.modules["wandb"] = module


class _Inert:
    """Accepts every call and attribute and does nothing: `wandb.Table(...).add_data(...)`, `wandb.run.summary`…"""

    def __init__(self, *_args: object, **_kwargs: object) -> None: ...

    def __call__(self, *_args: object, **_kwargs: object) -> "_Inert":
        return self

    def __getattr__(self, name: str) -> "_Inert":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _key: Any) -> "_Inert":
        return self

    def __setitem__(self, _key: object, _value: object) -> None: ...
