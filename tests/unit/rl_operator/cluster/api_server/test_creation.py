import pytest
from tests.unit.rl_operator.cluster.documents import POD_NAME, pod_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.api.names import RUN_LABEL
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.resources import create_ours
from rl_operator.operator_errors import NameTakenError
from rl_operator.render.labels import controller_uid

PODS = "/api/v1/namespaces/team-a/pods"


async def test_an_object_created_by_an_earlier_try_is_used_as_it_is_now(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PODS, Answer({"message": "exists"}, 409))
    api.answers("GET", f"{PODS}/{POD_NAME}", Answer(pod_document(7)))
    assert (await create_ours(client, pod_document()))["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize("labels", [None, {RUN_LABEL: "other", "mine": "x"}], ids=["gone", "changed"])
async def test_labels_removed_from_a_pod_are_put_back(
    api: FakeApi, client: ClusterClient, labels: dict[str, str] | None
) -> None:
    """Without them the watch has no further events of it."""
    stripped = pod_document(7)
    stripped["metadata"] = {key: value for key, value in stripped["metadata"].items() if key != "labels"}
    stripped["metadata"] |= {"labels": labels} if labels else {}
    api.answers("POST", PODS, Answer({"message": "exists"}, 409))
    api.answers("GET", f"{PODS}/{POD_NAME}", Answer(stripped))
    api.answers("PATCH", f"{PODS}/{POD_NAME}", Answer(pod_document(8)))
    assert (await create_ours(client, pod_document()))["metadata"]["resourceVersion"] == "8"
    manifest = pod_document()["metadata"]
    assert api.requests[-1].body == {"metadata": {"uid": manifest["uid"], "labels": manifest["labels"]}}


async def test_a_name_conflict_is_described_with_the_owners_kind(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PODS, Answer({"message": "exists"}, 409))
    api.answers("GET", f"{PODS}/{POD_NAME}", Answer(pod_document(owner="another")))
    with pytest.raises(NameTakenError, match="is not this runtime's: delete or rename it, or rename the runtime"):
        await create_ours(client, pod_document(), owner="runtime")


def test_only_a_controller_counts_as_owner() -> None:
    owned = {"metadata": {"ownerReferences": [{"uid": "friend"}, {"uid": "owner", "controller": True}]}}
    assert controller_uid(owned) == "owner"
    assert controller_uid({"metadata": {}}) is None
