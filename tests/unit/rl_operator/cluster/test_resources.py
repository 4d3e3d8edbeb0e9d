import pytest

from rl_operator.cluster.resources import EVENTS, PODS, RUNS, RUNTIMES

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
