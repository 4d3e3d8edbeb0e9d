"""Reconciles RLRuntimes over a scripted API server."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving

from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches, Catalogs
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.reconcile.reconcile_kinds import TROUBLE_SECONDS, reconcile_runtime

KEY = ("", "tiny")
CONFIG_MAPS = "/api/v1/namespaces/ops/configmaps"
PODS = "/api/v1/namespaces/ops/pods"
STATUS = "/apis/rl-operator.dev/v1alpha1/rlruntimes/tiny/status"
NO_PODS = Answer({"metadata": {"resourceVersion": "9"}, "items": []})


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake:
        fake.answers("PATCH", STATUS, Answer(runtime_document(2)))
        fake.answers("GET", PODS, NO_PODS)
        yield fake


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[KindsClient]:
    async with await connect(api, tmp_path) as client:
        caches = Caches(Catalogs(frozenset({samples.TINY.spec.image})))
        yield KindsClient(client, caches, EventRecorder(client), print)


async def look(client: KindsClient, version: int = 1, **spec: Any) -> float | None:
    client._caches.runtimes.put(runtime_document(version, **spec))
    return await reconcile_runtime(KEY, client, lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "ops")


def written(api: FakeApi) -> tuple[dict[str, Any], dict[str, str]]:
    """The status, and its conditions' reasons."""
    (patch,) = api.asked("PATCH", STATUS)
    status = patch.body["status"]
    return status, {condition["type"]: condition["reason"] for condition in status["conditions"]}


async def test_the_shipped_catalog_is_written(api: FakeApi, client: KindsClient) -> None:
    metadata = {"namespace": "ops", "name": "rl-catalog-tiny", "uid": "c", "resourceVersion": "1"}
    created = {"metadata": metadata | {"ownerReferences": [{"uid": "tiny", "controller": True}]}}
    api.answers("POST", CONFIG_MAPS, Answer(created, 201))
    api.answers("PATCH", f"{CONFIG_MAPS}/rl-catalog-tiny", Answer({}))
    assert await look(client) is None
    status, reasons = written(api)
    assert reasons == {"Ready": "CatalogRead"}
    assert status["fieldsRef"] == {"namespace": "ops", "name": "rl-catalog-tiny"}
    assert [environment["name"] for environment in status["environments"]] == [
        each.name for each in samples.CATALOG.outline
    ]


@pytest.mark.parametrize(
    ("code", "generation", "ours"),
    [(200, 1, False), (403, 1, False), (404, 1, True), (200, 2, True)],
    ids=["there", "not for us to read", "gone", "of an older spec"],
)
async def test_two_operators_do_not_overwrite_each_other(
    api: FakeApi, client: KindsClient, code: int, generation: int, ours: bool
) -> None:
    """The other one has written its own location."""
    metadata = {"namespace": "ops", "name": "rl-catalog-tiny", "uid": "c", "resourceVersion": "1"}
    created = {"metadata": metadata | {"ownerReferences": [{"uid": "tiny", "controller": True}]}}
    api.answers("POST", CONFIG_MAPS, Answer(created, 201))
    api.answers("PATCH", f"{CONFIG_MAPS}/rl-catalog-tiny", Answer({}))
    theirs = "/api/v1/namespaces/theirs/configmaps/rl-catalog-tiny"
    api.answers("GET", theirs, Answer({"metadata": metadata, "message": "no"}, code))
    document = runtime_document(1)
    document["metadata"]["generation"] = generation
    document["status"] = {"observedGeneration": 1, "fieldsRef": {"namespace": "theirs", "name": "rl-catalog-tiny"}}
    client._caches.runtimes.put(document)
    await reconcile_runtime(KEY, client, lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "ops")
    assert bool(api.asked("PATCH", STATUS)) is ours


async def test_a_missing_permission_is_reported_along_with_what_is_known(api: FakeApi, client: KindsClient) -> None:
    api.answers("POST", CONFIG_MAPS, Answer({"message": "may not create configmaps"}, 403))
    assert await look(client) == TROUBLE_SECONDS
    status, reasons = written(api)
    assert reasons == {"Reconciling": "CatalogNotWritten"}
    assert "may not create configmaps" in status["conditions"][0]["message"]
    assert status["environments"]
    assert "fieldsRef" not in status


async def test_an_unread_image_gets_a_pod(api: FakeApi, client: KindsClient) -> None:
    api.answers("POST", PODS, Answer({}, 201))
    seconds = await look(client, image="theirs:1")
    assert seconds is not None
    status, reasons = written(api)
    assert reasons == {"Reconciling": "Discovering"}
    assert "theirs:1" in status["conditions"][0]["message"]
    assert api.asked("POST", PODS)


async def test_of_two_images_that_of_the_environments_is_read(api: FakeApi, client: KindsClient) -> None:
    """The other one's catalog is the one that ships: it says nothing about what runs."""
    api.answers("POST", PODS, Answer({}, 201))
    assert await look(client, environmentImage="theirs:1") is not None
    status, reasons = written(api)
    assert reasons == {"Reconciling": "Discovering"}
    assert "theirs:1" in status["conditions"][0]["message"]
    assert "environments" not in status
    (pod,) = api.asked("POST", PODS)
    assert pod.body["spec"]["containers"][0]["image"] == "theirs:1"


async def test_a_changed_image_of_the_environments_is_read_again(api: FakeApi, client: KindsClient) -> None:
    api.answers("POST", PODS, Answer({}, 201))
    await look(client, environmentImage="theirs:1")
    await look(client, 3, environmentImage="theirs:2")  # version 2 has the status of the first look
    assert [pod.body["spec"]["containers"][0]["image"] for pod in api.asked("POST", PODS)] == ["theirs:1", "theirs:2"]


async def test_an_invalid_runtime_is_reported_and_its_image_is_not_read(api: FakeApi, client: KindsClient) -> None:
    assert await look(client, image="theirs:1", locked={"trainer": {"lerning_rate": 1, "lora_rank": "x"}}) is None
    status, reasons = written(api)
    assert reasons == {"Ready": "RuntimeInvalid", "Stalled": "RuntimeInvalid"}
    message = status["conditions"][0]["message"]
    assert "spec.locked.trainer.lerning_rate" in message
    assert "spec.locked.trainer.lora_rank" in message
    assert not api.asked("POST", PODS)


async def test_an_unreadable_runtime_is_reported_too(api: FakeApi, client: KindsClient) -> None:
    assert await look(client, novelty=1) is None
    status, reasons = written(api)
    assert reasons["Stalled"] == "RuntimeInvalid"
    assert "spec.novelty" in status["conditions"][0]["message"]
