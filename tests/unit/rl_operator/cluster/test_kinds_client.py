"""What the reconciles of RLEnvironments and RLRuntimes do to a cluster."""

from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import environment_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.operator_errors import NameTakenError
from rl_operator.render.catalog_and_history import ImageCatalog, catalog_config_map

CONFIG_MAPS = "/api/v1/namespaces/ops/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/rl-catalog-lab"
RUNTIME = samples.make_runtime().with_changes(metadata=samples.make_runtime().metadata.with_changes(uid="u1"))
MANIFEST = catalog_config_map(RUNTIME, "ops", ImageCatalog(samples.catalog_of()))


@pytest.fixture
def told_lines() -> list[str]:
    return []


@pytest.fixture
def kinds(client: ClusterClient, caches: Caches, told_lines: list[str]) -> KindsClient:
    return KindsClient(client, caches, EventRecorder(client), told_lines.append)


def live(data: dict[str, str], owner: str = "u1") -> dict[str, Any]:
    metadata = {"name": "rl-catalog-lab", "namespace": "ops", "uid": "c1", "resourceVersion": "7"}
    return {"metadata": metadata | {"ownerReferences": [{"uid": owner, "controller": True}]}, "data": data}


async def test_a_config_map_is_created_once_and_then_only_changed_if_it_differs(
    api: FakeApi, kinds: KindsClient
) -> None:
    api.answers("POST", CONFIG_MAPS, Answer(live(MANIFEST["data"]), 201))
    await kinds.save_config_map(MANIFEST, None)
    await kinds.save_config_map(MANIFEST, live(MANIFEST["data"]))
    assert len(api.requests) == 1
    api.answers("PATCH", CONFIG_MAP, Answer({}))
    await kinds.save_config_map(MANIFEST, live(MANIFEST["data"] | {"image": "old", "more": "1"}))
    assert api.requests[-1].body == {
        "metadata": {"uid": "c1", "resourceVersion": "7"},
        "data": {"image": "tinker-atropos:dev", "more": None},
    }


async def test_an_unrelated_config_map_is_left_alone(api: FakeApi, kinds: KindsClient) -> None:
    with pytest.raises(NameTakenError, match=r"ConfigMap ops/rl-catalog-lab exists and is not this runtime's"):
        await kinds.save_config_map(MANIFEST, live({}, owner="u2"))
    api.answers("POST", CONFIG_MAPS, Answer({"message": "exists"}, 409))
    api.answers("GET", CONFIG_MAP, Answer(live({}, owner="u2")))
    with pytest.raises(NameTakenError, match="is not this runtime's"):
        await kinds.save_config_map(MANIFEST, None)


async def test_a_status_is_written_against_the_version_read_and_known_at_once(
    api: FakeApi, kinds: KindsClient, caches: Caches
) -> None:
    caches.environments.put(environment_document(4))
    environment = kinds.environment(("team-a", "maze"))
    path = "/apis/rl-operator.dev/v1alpha1/namespaces/team-a/rlenvironments/maze/status"
    api.answers("PATCH", path, Answer(environment_document(5) | {"status": {"className": "Maze"}}))
    await kinds.write_environment_status(environment, environment.status.with_changes(class_name="Maze"))
    assert api.requests[0].body == {
        "metadata": {"uid": "maze", "resourceVersion": "4"},
        "status": {"className": "Maze"},
    }
    written = kinds.environment(("team-a", "maze"))
    assert written.status.class_name == "Maze"


async def test_the_status_of_an_unreadable_runtime_is_written_anyway(
    api: FakeApi, kinds: KindsClient, caches: Caches
) -> None:
    caches.runtimes.put(runtime_document(4, novelty=1))
    runtime = kinds.runtime("tiny")
    api.answers("PATCH", "/apis/rl-operator.dev/v1alpha1/rlruntimes/tiny/status", Answer(runtime_document(5)))
    await kinds.write_runtime_status(runtime, runtime.status.with_changes(observed_generation=1))
    assert api.requests[0].body["status"] == {"observedGeneration": 1}


async def test_a_new_catalog_is_reported(kinds: KindsClient, told_lines: list[str]) -> None:
    found = ImageCatalog(samples.catalog_of())
    kinds.hold_catalog("theirs:1", found)
    assert told_lines == ["theirs:1"]
    assert kinds.catalog("theirs:1") == found
