"""The pollers of metrics, over the operator's caches."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.runtime import Runtime
from rl_operator.cluster.cache.caches import Caches
from rl_operator.metrics.polled_metrics import PolledMetrics
from rl_operator.metrics.trainer import TrainerPoller
from rl_operator.metrics.wandb import AskedRun, WandbPoller
from rl_operator.metrics.wandb_query import place_of
from rl_operator.settings import OperatorSettings
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.observed.wandb_run import is_current

KEY_VARIABLE: Final = "WANDB_API_KEY"
"""The operator's own key: not a setting, so that it appears in no argument and no log."""


def polled_metrics(
    caches: Caches,
    settings: OperatorSettings,
    changed: Callable[[PodObservation], None],
    env_vars: Mapping[str, str],
) -> PolledMetrics:
    """Trainers are always polled; W&B only with a key."""
    trainers = TrainerPoller(lambda: tuple(caches.live_pods.values()), changed, interval_seconds=settings.poll_seconds)
    key = env_vars.get(KEY_VARIABLE, "").strip()
    if not key:
        return PolledMetrics(trainers)
    runs = partial(asked_runs, caches, trainers)
    return PolledMetrics(trainers, WandbPoller(runs, changed, key=key, interval_seconds=settings.wandb_seconds))


def asked_runs(caches: Caches, trainers: TrainerPoller) -> Iterator[AskedRun]:
    """The runs whose trainer runs, and whose W&B project is known."""
    for pod in tuple(caches.live_pods.values()):
        if pod.component != TRAINING_COMPONENT or pod.over or not pod.address:
            continue
        run = caches.runs.get((pod.namespace, pod.run_name))
        if run is None or run.status.finished:
            continue
        if run.metadata.uid != pod.run_uid or run.status.pod_name != pod.name:
            continue
        runtime = caches.runtimes.get(("", run.spec.runtime))
        place = place_of(run, runtime) if isinstance(runtime, Runtime) else None
        if place is not None:
            wanted = trainers.unreachable(pod) and is_current(run)
            yield AskedRun(pod, run.metadata.uid, place, metrics_wanted=wanted)
