import pytest
from tests.unit.rl_operator.cluster.documents import POD_NAME, pod_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.cluster.client import ClusterClient
from rl_operator.cluster.creation import controller_uid, create_ours
from rl_operator.errors import NameTakenError

PODS = "/api/v1/namespaces/team-a/pods"


async def test_what_an_earlier_try_created_is_taken_as_it_is_now(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PODS, Answer({"message": "exists"}, 409))
    api.answers("GET", f"{PODS}/{POD_NAME}", Answer(pod_document(7)))
    assert (await create_ours(client, pod_document()))["metadata"]["resourceVersion"] == "7"


async def test_a_name_in_the_way_is_said_in_the_owners_word(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", PODS, Answer({"message": "exists"}, 409))
    api.answers("GET", f"{PODS}/{POD_NAME}", Answer(pod_document(owner="another")))
    with pytest.raises(NameTakenError, match="is not this runtime's: delete or rename it, or rename the runtime"):
        await create_ours(client, pod_document(), owner="runtime")


def test_only_a_controller_owns() -> None:
    owned = {"metadata": {"ownerReferences": [{"uid": "friend"}, {"uid": "owner", "controller": True}]}}
    assert controller_uid(owned) == "owner"
    assert controller_uid({"metadata": {}}) is None
