"""Steps of reading an image, over a scripted API server."""

import copy
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect

from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.reconcile.reconcile_kinds import read_image, tidy
from rl_operator.render.config_maps import ImageCatalog
from rl_operator.render.discovery import discovery_pod, runtime_reading
from rl_operator.status.image_reading import FIRST_PAUSE_SECONDS, Wait

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
READING = runtime_reading(samples.make_runtime(image="theirs:1"), "ops")
PODS = "/api/v1/namespaces/ops/pods"


def pod(attempt: int, phase: str, code: int = 0, **labels: str) -> dict[str, Any]:
    document = copy.deepcopy(discovery_pod(READING, attempt))
    metadata = document["metadata"]
    metadata |= {"uid": f"u{attempt}", "creationTimestamp": "2026-01-02T03:04:05Z"}
    metadata["labels"] |= labels
    state = {"terminated": {"exitCode": code, "finishedAt": "2026-01-02T03:04:05Z"}}
    status = {"phase": phase, "containerStatuses": [{"imageID": "sha256:1", "state": state}]}
    return document | {"status": status}


def listed(*pods: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": "9"}, "items": list(pods)})


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[KindsClient]:
    async with await connect(api, tmp_path) as client:
        yield KindsClient(client, Caches(), EventRecorder(client), print)


async def test_a_missing_pod_is_created(api: FakeApi, client: KindsClient) -> None:
    api.answers("GET", PODS, listed())
    api.answers("POST", PODS, Answer(pod(1, "Pending"), 201))
    step = await read_image(READING, client, NOW)
    assert isinstance(step, Wait)
    assert step.reason == "Discovering"
    assert api.asked("POST", PODS)[0].body["metadata"]["name"] == f"rl-discovery-{READING.key}-1"


async def test_the_output_of_a_successful_pod_is_the_catalog(api: FakeApi, client: KindsClient) -> None:
    api.answers("GET", PODS, listed(pod(1, "Succeeded")))
    name = f"{PODS}/rl-discovery-{READING.key}-1"
    api.answers("GET", f"{name}/log", Answer(text=json.dumps({"environments": [{"name": "maze"}]})))
    found = await read_image(READING, client, NOW)
    assert isinstance(found, ImageCatalog)
    assert (list(found.catalog.names), found.image_id) == (["maze"], "sha256:1")
    assert api.asked("GET", f"{name}/log")[0].query["limitBytes"] == str(4 * 2**20)
    assert not api.asked("DELETE", name), "it stays until the catalog is written down"


async def test_a_failure_is_retried_later_and_the_old_pod_is_deleted(api: FakeApi, client: KindsClient) -> None:
    api.answers("GET", PODS, listed(pod(1, "Failed", 1)))
    assert isinstance(await read_image(READING, client, NOW), Wait)
    assert not api.asked("POST", PODS)
    api.answers("POST", PODS, Answer(pod(2, "Pending"), 201))
    api.answers("DELETE", f"{PODS}/rl-discovery-{READING.key}-1", Answer({}))
    await read_image(READING, client, NOW + timedelta(seconds=FIRST_PAUSE_SECONDS))
    assert api.asked("POST", PODS)[0].body["metadata"]["name"].endswith("-2")
    (deleted,) = api.asked("DELETE", f"{PODS}/rl-discovery-{READING.key}-1")
    assert deleted.body["preconditions"]["uid"] == "u1"


async def test_cleanup_deletes_pods_that_were_read_or_are_no_longer_wanted(api: FakeApi, client: KindsClient) -> None:
    before, others = pod(2, "Failed", 1, **{"rl-operator.dev/discovery": "before"}), pod(3, "Pending")
    others["metadata"]["labels"]["rl-operator.dev/discovery"] = "other"
    others["metadata"]["ownerReferences"][0]["uid"] = "somebody"
    api.answers("GET", PODS, listed(pod(1, "Succeeded"), before, others))
    await tidy(READING, client)
    deleted = [request.body["preconditions"]["uid"] for request in api.requests if request.method == "DELETE"]
    assert deleted == ["u1", "u2"]
