"""How the parts are wired: what gets listed."""

from pathlib import Path
from typing import Any

from tests.unit.rl_operator.cluster.documents import pod_document, run_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.cache.caches import list_own_kinds
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.operator import Operator

KEY = ("team-a", "sorting")


def make_operator(client: ClusterClient, **settings: Any) -> Operator:
    return Operator(client, OperatorSettings(**settings), WatchAges(300))


def named(name: str, version: int, **fields: Any) -> dict[str, Any]:
    document = run_document(version, **fields)
    document["metadata"] |= {"name": name, "uid": name}
    return document


async def test_objects_that_vanished_unwatched_are_forgotten_by_the_next_list(tmp_path: Path) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        operator = make_operator(client)
        operator.parts.caches.runs.put(run_document(1))
        operator.parts.caches.runs.put(named("other", 2))
        operator.parts.caches.pods.put(pod_document(3))
        kinds = "/apis/rl-operator.dev/v1alpha1"
        api.answers(
            "GET", f"{kinds}/rlruntimes", Answer({"metadata": {"resourceVersion": "9"}, "items": [runtime_document(4)]})
        )
        listed = {"metadata": {"resourceVersion": "9"}, "items": [named("other", 2)]}
        api.answers("GET", f"{kinds}/rltrainingruns", Answer(listed))
        api.answers("GET", f"{kinds}/rlenvironments", Answer({"metadata": {"resourceVersion": "9"}, "items": []}))
        await list_own_kinds(client, operator.parts.caches, None)
        assert [run.metadata.name for run in operator.parts.caches.runs] == ["other"]
        # Its pod still has our finalizer: the run's key must be enqueued once more.
        assert KEY in operator.parts.caches.pods.runs()


async def test_an_operator_of_one_namespace_reads_its_labels_and_watches_no_other(tmp_path: Path) -> None:
    async with serving(FakeApi()) as api, await connect(api, tmp_path) as client:
        operator = make_operator(client, namespace="team-a")
        assert "namespaces" not in {informer.what for informer in operator.parts.informers}
        nothing = Answer({"metadata": {"resourceVersion": "9"}, "items": []})
        kinds = "/apis/rl-operator.dev/v1alpha1"
        for path in ("rlruntimes", "namespaces/team-a/rlenvironments", "namespaces/team-a/rltrainingruns"):
            api.answers("GET", f"{kinds}/{path}", nothing)
        document = {"metadata": {"name": "team-a", "uid": "n", "resourceVersion": "3", "labels": {"team": "a"}}}
        api.answers("GET", "/api/v1/namespaces/team-a", Answer(document))
        await list_own_kinds(client, operator.parts.caches, "team-a")
        assert operator.parts.caches.namespaces.get(("", "team-a")) == {"team": "a"}
