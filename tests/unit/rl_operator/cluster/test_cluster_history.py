"""A run's history as an object, over HTTP: created, continued, and never an unrelated one."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import pod_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_contract.status_metrics import MAX_POINTS
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches, project_pod
from rl_operator.cluster.cluster_run_client import ClusterRunClient, write_history
from rl_operator.operator_errors import ConflictError, NameTakenError
from rl_operator.status.observed.history import Point, history_map_name

RUN = samples.make_run()
NAME = history_map_name(RUN)
ENDED = RUN.with_changes(status=RUN.status.with_changes(history_name=NAME))
FOLDER = "/api/v1/namespaces/team-a/configmaps"
POINTS: tuple[Point, ...] = ({"step": 2, "rewardMean": 0.5},)


def config_map(*points: Point, owner: str = samples.UID) -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}]
    metadata = {"name": NAME, "namespace": "team-a", "uid": "c-1", "resourceVersion": "7", "ownerReferences": owners}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"history.json": json.dumps({"points": points})}}


def written(body: Any) -> list[Point]:
    points: list[Point] = json.loads(body["data"]["history.json"])["points"]
    return points


async def test_the_first_attempt_creates_it_owned_and_labeled(api: FakeApi, client: ClusterClient) -> None:
    api.answers("POST", FOLDER, Answer(config_map(*POINTS), 201))
    await write_history(client, ENDED, POINTS, None)
    body = api.asked("POST", FOLDER)[0].body
    assert written(body) == list(POINTS)
    assert body["metadata"]["ownerReferences"][0]["uid"] == samples.UID
    assert body["metadata"]["labels"]["rl-operator.dev/run"] == "sorting"
    assert body["metadata"]["labels"]["app.kubernetes.io/component"] == "history"


async def test_a_later_one_continues_with_the_same_object(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    earlier = config_map({"step": 1, "rewardMean": 0.25}, {"step": 2, "rewardMean": 0.25}, {"step": 3})
    await write_history(client, ENDED, POINTS, earlier)
    body = api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body
    assert written(body) == [{"step": 1, "rewardMean": 0.25}, *POINTS]
    assert body["metadata"] == {"uid": "c-1", "resourceVersion": "7"}


async def test_it_stays_bounded_whatever_was_there_before(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    many = [{"step": step} for step in range(1, 801)]
    await write_history(client, ENDED, [{"step": step} for step in range(801, 1_601)], config_map(*many))
    body = api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body
    assert len(written(body)) <= MAX_POINTS
    assert written(body)[-1] == {"step": 1_600}


async def test_an_unreadable_history_is_started_over(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(config_map()))
    await write_history(client, ENDED, POINTS, config_map() | {"data": {"history.json": "{"}})
    assert written(api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body) == list(POINTS)


async def test_an_unrelated_object_with_that_name_is_not_taken_over(api: FakeApi, client: ClusterClient) -> None:
    with pytest.raises(NameTakenError, match="is not this run's"):
        await write_history(client, ENDED, POINTS, config_map(owner="u-2"))
    assert api.asked("PATCH", f"{FOLDER}/{NAME}") == []


async def test_one_that_changed_meanwhile_is_left_alone(api: FakeApi, client: ClusterClient) -> None:
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer({"message": "modified"}, 409))
    with pytest.raises(ConflictError):
        await write_history(client, ENDED, POINTS, config_map())


async def test_the_view_reads_it_only_if_it_is_known_to_exist(api: FakeApi, client: ClusterClient) -> None:
    caches = Caches()
    pod = project_pod(pod_document()).observation
    run_client = ClusterRunClient(client, caches, EventRecorder(client), ToldMetrics(histories={pod.name: POINTS}))
    created = pod_document(version=9)
    created["metadata"] |= {"name": NAME, "uid": "c-1"}
    api.answers("POST", FOLDER, Answer(created, 201))
    await run_client.save_history(ENDED, pod)
    assert api.asked("GET", f"{FOLDER}/{NAME}") == []
    api.answers("GET", f"{FOLDER}/{NAME}", Answer(config_map({"step": 1})))
    api.answers("PATCH", f"{FOLDER}/{NAME}", Answer(created))
    await run_client.save_history(ENDED, pod)
    assert written(api.asked("PATCH", f"{FOLDER}/{NAME}")[0].body) == [{"step": 1}, *POINTS]
    await run_client.save_history(RUN, pod)
    assert len(api.requests) == 3, "a status that names no series has none"
