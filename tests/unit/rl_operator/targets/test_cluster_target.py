"""A cluster as a target, against a client that answers as the API server does."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.operator_errors import GoneError
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.target_loop import LoopThread


def target_over(client: object) -> ClusterTarget:
    return ClusterTarget(LoopThread(), cast("ClusterClient", client), label="", flags="", namespace="lab", note=print)


class EventsClient:
    """Has Events, and selects them by their fields."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = events

    async def each(self, path: str, params: Mapping[str, str], take: Callable[[dict[str, Any]], None]) -> None:
        assert path == "/apis/events.k8s.io/v1/namespaces/lab/events"
        wanted = dict(each.removeprefix("regarding.").split("=") for each in params["fieldSelector"].split(","))
        for event in self._events:
            if wanted.items() <= event["regarding"].items():
                take(event)


def event(reason: str, uid: str, second: int) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": f"2026-01-01T00:00:{second:02}Z"},
        "regarding": {"kind": "RLTrainingRun", "name": "sorting", "uid": uid},
        "type": "Normal",
        "reason": reason,
        "note": "It is.",
    }


def test_events_are_in_order_and_none_is_of_a_deleted_run_of_the_name() -> None:
    client = EventsClient(event("Training", "new", 3), event("Succeeded", "old", 1), event("Starting", "new", 2))
    assert target_over(client).events("lab", "sorting", "new") == [
        "2026-01-01T00:00:02Z  Normal   Starting              It is.",
        "2026-01-01T00:00:03Z  Normal   Training              It is.",
    ]


class RunsClient:
    """Has the metadata of one run."""

    async def each(
        self, path: str, params: Mapping[str, Any], take: Callable[[dict[str, Any]], None], accept: str
    ) -> str:
        assert (path, params) == ("/apis/rl-operator.dev/v1alpha1/rltrainingruns", {"resourceVersion": "0"})
        assert "PartialObjectMetadata" in accept
        take({"metadata": {"namespace": "lab", "name": "sorting", "uid": "uid", "resourceVersion": "7"}})
        return "7"


class ChunksClient:
    """Has three chunks of runs."""

    asked = 0

    async def chunk(
        self, path: str, params: Mapping[str, Any], take: Callable[[dict[str, Any]], None]
    ) -> tuple[str, str]:
        assert path == "/apis/rl-operator.dev/v1alpha1/namespaces/lab/rltrainingruns"
        assert params == {"labelSelector": "a=b", "continue": ("", "second", "third")[self.asked]}
        self.asked += 1
        take({"chunk": self.asked})
        return "7", ("", "second", "third", "")[self.asked]


def test_runs_are_read_while_they_are_asked_for() -> None:
    client = ChunksClient()
    runs = target_over(client).runs("lab", "a=b")
    assert (next(runs), client.asked) == ({"chunk": 1}, 1)
    assert ([*runs], client.asked) == ([{"chunk": 2}, {"chunk": 3}], 3)


def test_versions_are_asked_of_the_api_servers_cache() -> None:
    assert target_over(RunsClient()).run_versions(None) == {("lab", "sorting"): "uid/7"}


class GoneClient:
    """Its pods are gone."""

    async def lines(self, path: str, params: Mapping[str, Any]) -> AsyncIterator[bytes]:
        assert params == {"container": "trainer"}
        raise GoneError(f'GET {path}: the API server answered 404: pods "sorting-1" not found')
        yield b""


def test_the_logs_of_a_pod_that_is_gone_are_said_to_be_gone() -> None:
    target = target_over(GoneClient())
    with pytest.raises(GoneError, match=r"pod lab/sorting-1 is gone, and its logs with it \(GET .*404"):
        list(target.log_lines("lab", "sorting-1", "trainer", tail=None, follow=False))
