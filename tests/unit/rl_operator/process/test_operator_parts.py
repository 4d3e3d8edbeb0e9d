"""Which runs are looked up at W&B, and that none is without a key."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import POD_NAME, pod_document, run_document, runtime_document

from rl_operator.cluster.cache.caches import Caches
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.metrics.wandb_query import WandbProject
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.operator_parts import asked_runs, polled_metrics

WANDB = {"entity": "me", "project": "rl", "keySecret": {"name": "wandb", "key": "KEY"}, "baseURL": "https://w.example"}
STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podName": POD_NAME, "attempt": 1}


def caches(*, pod: dict[str, Any] | None = None, status: dict[str, Any] = STARTED, **wandb: Any) -> Caches:
    caches = Caches()
    caches.runs.put(run_document(1, status))
    caches.runtimes.put(runtime_document(2, wandb={**WANDB, **wandb}))
    document = pod_document(3)
    document["status"] = {"phase": "Running", "podIP": "10.0.0.1", **(pod or {})}
    caches.pods.put(document)
    return caches


def asked(caches: Caches) -> list[WandbProject]:
    return [each.project for each in asked_runs(caches, TrainerPoller(list, print, interval_seconds=1))]


def test_a_training_run_is_looked_up_where_its_runtime_says() -> None:
    (found,) = asked_runs(caches(), TrainerPoller(list, print, interval_seconds=1))
    assert (found.uid, found.project) == (samples.UID, WandbProject("https://w.example", "me", "rl"))
    assert found.pod.name == POD_NAME


NOT_ASKED: dict[str, dict[str, Any]] = {
    "its pod is over": {"pod": {"phase": "Succeeded"}},
    "its pod has no address yet": {"pod": {"podIP": None}},
    "the pod is an earlier attempt's": {"status": {**STARTED, "podName": "another"}},
    "the run is over": {"status": {**STARTED, "phase": "Succeeded"}},
    "nobody says where": {"project": None},
    "its trainer has no key": {"keySecret": None},
}


@pytest.mark.parametrize("changes", NOT_ASKED.values(), ids=NOT_ASKED)
def test_runs_that_are_not_looked_up(changes: dict[str, Any]) -> None:
    assert asked(caches(**changes)) == []


def test_a_run_with_a_foreign_pod_or_no_runtime_is_not_looked_up() -> None:
    without = caches()
    without.runtimes.remove(runtime_document(4))
    assert asked(without) == []
    foreign = caches()
    foreign.pods.put(pod_document(9, owner="another"))
    assert asked(foreign) == []


@pytest.mark.parametrize(("attempt", "wanted"), [(1, True), (2, False)])
def test_metrics_of_an_unreachable_trainer_are_wanted_in_the_first_attempt(attempt: int, wanted: bool) -> None:
    """W&B's figures of a later one may be those of the others: no reconcile is to be woken for them."""
    trainers = TrainerPoller(list, print, interval_seconds=1)
    trainers.unreachable = lambda _: True  # type: ignore[method-assign]
    (found,) = asked_runs(caches(status={**STARTED, "attempt": attempt}), trainers)
    assert found.metrics_wanted is wanted


@pytest.mark.parametrize(
    ("env_vars", "asks"), [({}, False), ({"WANDB_API_KEY": " "}, False), ({"WANDB_API_KEY": "k"}, True)]
)
def test_without_its_own_key_the_operator_looks_up_nothing(env_vars: dict[str, str], asks: bool) -> None:
    figures = polled_metrics(Caches(), OperatorSettings(), print, env_vars)
    assert figures.asks_wandb is asks
