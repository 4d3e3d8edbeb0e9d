from typing import Any

import pytest
from tests.unit.rl_operator.cluster.documents import POD_NAME, pod_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.api.names import RUN_LABEL
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.resources import (
    EVENTS,
    PODS,
    RUNS,
    RUNTIMES,
    KindsMissingError,
    create_ours,
    find,
    require_kinds,
)
from rl_operator.operator_errors import GoneError, NameTakenError, TemplateChangedError
from rl_operator.render.labels import controller_uid

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


FOLDER = "/api/v1/namespaces/team-a/pods"
POD = f"{FOLDER}/{POD_NAME}"


@pytest.fixture
def api_with_a_pod(api: FakeApi) -> FakeApi:
    """The name of the pod is taken."""
    api.answers("POST", FOLDER, Answer({"message": "exists"}, 409))
    return api


async def test_an_object_created_by_an_earlier_try_is_used_as_it_is_now(
    api_with_a_pod: FakeApi, client: ClusterClient
) -> None:
    api_with_a_pod.answers("GET", POD, Answer(pod_document(7)))
    assert (await create_ours(client, pod_document()))["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("labels", [None, {RUN_LABEL: "other", "mine": "x"}], ids=["gone", "changed"])
async def test_labels_removed_from_a_pod_are_put_back(
    api_with_a_pod: FakeApi, client: ClusterClient, labels: dict[str, str] | None
) -> None:
    """Without them the watch has no further events of it."""
    stripped, manifest = pod_document(7), pod_document()["metadata"]
    del stripped["metadata"]["labels"]
    stripped["metadata"] |= {"labels": labels} if labels else {}
    api_with_a_pod.answers("GET", POD, Answer(stripped))
    api_with_a_pod.answers("PATCH", POD, Answer(pod_document(8)))
    assert (await create_ours(client, pod_document()))["metadata"]["resourceVersion"] == "8"
    assert api_with_a_pod.requests[-1].body == {"metadata": {"uid": manifest["uid"], "labels": manifest["labels"]}}


async def test_a_name_conflict_is_described_with_the_owners_kind(
    api_with_a_pod: FakeApi, client: ClusterClient
) -> None:
    api_with_a_pod.answers("GET", POD, Answer(pod_document(owner="another")))
    with pytest.raises(NameTakenError, match="is not this runtime's: delete or rename it, or rename the runtime"):
        await create_ours(client, pod_document(), owner="runtime")


@pytest.mark.parametrize(
    ("early", "said"),
    [
        ({"data": {"a": "2"}}, "a differs"),
        ({"data": {}}, "a is missing"),
        ({"data": {"a": "1", "b": "", "c": "", "d": "", "e": "", "f": ""}}, "'b' is added, .*'e' is added and 1 more"),
        ({"immutable": False}, "it is not immutable"),
    ],
)
async def test_a_frozen_config_map_that_was_there_before(
    api: FakeApi, client: ClusterClient, early: dict[str, Any], said: str
) -> None:
    """Its name and its owner are known before the run starts."""
    frozen = {**pod_document(), "kind": "ConfigMap", "immutable": True, "data": {"a": "1"}}
    folder = "/api/v1/namespaces/team-a/configmaps"
    api.answers("POST", folder, Answer({"message": "exists"}, 409), Answer({"message": "exists"}, 409))
    place = f"{folder}/{frozen['metadata']['name']}"
    api.answers("GET", place, Answer({**frozen, **early}), Answer(frozen))
    with pytest.raises(TemplateChangedError, match=said):
        await create_ours(client, frozen)
    assert await create_ours(client, frozen) == frozen


def test_only_a_controller_counts_as_owner() -> None:
    owned = {"metadata": {"ownerReferences": [{"uid": "friend"}, {"uid": "owner", "controller": True}]}}
    assert controller_uid(owned) == "owner"
    assert controller_uid({"metadata": {}}) is None


async def test_missing_crds_are_named_with_what_to_do(api: FakeApi, client: ClusterClient) -> None:
    with pytest.raises(KindsMissingError, match=r"rltrainingruns, rltrainingruns/status, rlruntimes, .*kubectl apply"):
        await require_kinds(client)
    api.answers("GET", "/apis/rl-operator.dev/v1alpha1", Answer({"resources": [{"name": "rltrainingruns"}]}))
    with pytest.raises(KindsMissingError, match=r"does not serve rltrainingruns/status, rlruntimes, .* of"):
        await require_kinds(client)
