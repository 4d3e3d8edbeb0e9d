import pytest
from tests.unit.rl_operator.cluster.fake_api import FakeApi

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.resources import EVENTS, PODS, RUNS, RUNTIMES, find
from rl_operator.operator_errors import GoneError

PATHS = [
    (PODS.path(), "/api/v1/pods"),
    (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
    (PODS.path("ns", "p"), "/api/v1/namespaces/ns/pods/p"),
    (RUNS.path("ns", "r", "status"), "/apis/rl-operator.dev/v1alpha1/namespaces/ns/rltrainingruns/r/status"),
    (RUNTIMES.path(), "/apis/rl-operator.dev/v1alpha1/rlruntimes"),
    (EVENTS.path("ns"), "/apis/events.k8s.io/v1/namespaces/ns/events"),
]


@pytest.mark.parametrize(("path", "expected"), PATHS)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


STRANGE = ("", ".", "..", "../secrets/x", "a/b", "%2e%2e", "a?watch=1", "a#b", "A", "a\n", "é", "a" * 254)


@pytest.mark.parametrize("name", STRANGE)
def test_an_impossible_name_has_no_path(name: str) -> None:
    with pytest.raises(GoneError, match="not a valid object name"):
        RUNS.path("ns", name)


@pytest.mark.parametrize("namespace", STRANGE[1:])
def test_an_impossible_namespace_has_no_path(namespace: str) -> None:
    with pytest.raises(GoneError, match="not a valid object name"):
        RUNS.path(namespace)


async def test_nothing_is_found_under_an_impossible_name(api: FakeApi, client: ClusterClient) -> None:
    assert await find(client, RUNS, "ns", "../secrets/x") is None
    assert api.requests == []
