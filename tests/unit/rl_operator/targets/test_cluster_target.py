"""A cluster as a target, against a client that answers as the API server does."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.loop import LoopThread


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


@pytest.fixture
def target() -> ClusterTarget:
    client = EventsClient(event("Training", "new", 3), event("Succeeded", "old", 1), event("Starting", "new", 2))
    return ClusterTarget(LoopThread(), cast("ClusterClient", client), label="", flags="", namespace="lab", note=print)


def test_events_are_in_order_and_none_is_of_a_deleted_run_of_the_name(target: ClusterTarget) -> None:
    assert target.events("lab", "sorting", "new") == [
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


def test_versions_are_asked_of_the_api_servers_cache() -> None:
    client = cast("ClusterClient", RunsClient())
    target = ClusterTarget(LoopThread(), client, label="", flags="", namespace="lab", note=print)
    assert target.run_versions(None) == {("lab", "sorting"): "uid/7"}
