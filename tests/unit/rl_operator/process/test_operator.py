"""What gets listed at the start, and which runs are looked up at W&B."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import POD_NAME, pod_document, run_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.cache.caches import Caches, list_own_kinds
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.metrics.wandb_query import WandbProject
from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.operator import Operator, asked_runs, polled_metrics, with_patience

KEY = ("team-a", "sorting")


def make_operator(client: ClusterClient, **settings: Any) -> Operator:
    return Operator(client, OperatorSettings(**settings), WatchAges(300))


def named(name: str, version: int, **fields: Any) -> dict[str, Any]:
    document = run_document(version, **fields)
    document["metadata"] |= {"name": name, "uid": name}
    return document


def listed(*items: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": "9"}, "items": list(items)})


KINDS = "/apis/rl-operator.dev/v1alpha1"


async def test_objects_that_vanished_unwatched_are_forgotten_by_the_next_list(
    api: FakeApi, client: ClusterClient
) -> None:
    caches, looked_at = make_operator(client).caches, []
    caches.runs.put(run_document(1))
    caches.runs.put(named("other", 2))
    caches.pods.put(pod_document(3))
    api.answers("GET", f"{KINDS}/rlruntimes", listed(runtime_document(4)))
    api.answers("GET", f"{KINDS}/rltrainingruns", listed(named("other", 2)))
    api.answers("GET", f"{KINDS}/rlenvironments", listed())
    await list_own_kinds(client, caches, None, lambda *changed: looked_at.append(changed))
    assert [run.metadata.name for run in caches.runs] == ["other"]
    assert looked_at == [("rlruntimes", ("", "tiny")), ("rltrainingruns", KEY)]
    # Its pod still has our finalizer: the run's key must be enqueued once more.
    assert KEY in caches.pods.runs()


async def test_an_operator_of_one_namespace_reads_its_labels_and_watches_no_other(
    api: FakeApi, client: ClusterClient
) -> None:
    operator = make_operator(client, namespace="team-a")
    assert "namespaces" not in {informer.what for informer in operator.informers}
    for path in ("rlruntimes", "namespaces/team-a/rlenvironments", "namespaces/team-a/rltrainingruns"):
        api.answers("GET", f"{KINDS}/{path}", listed())
    document = {"metadata": {"name": "team-a", "uid": "n", "resourceVersion": "3", "labels": {"team": "a"}}}
    api.answers("GET", "/api/v1/namespaces/team-a", Answer(document))
    await list_own_kinds(client, operator.caches, "team-a", lambda *_: None)
    assert operator.caches.namespaces.get(("", "team-a")) == ({"team": "a"}, False)


async def test_a_starting_api_server_is_waited_for() -> None:
    starting = [TargetUnreachableError("starting")]

    async def look() -> None:
        if starting:
            raise starting.pop()

    await with_patience(look, 5)
    assert not starting


async def test_the_wait_has_a_limit() -> None:
    async def look() -> None:
        raise TargetUnreachableError("starting")

    with pytest.raises(TargetUnreachableError, match=r"tried for 0 s"):
        await with_patience(look, 0.1)


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
    assert (figures._wandb is not None) is asks
