"""Reconciles RLEnvironments over a scripted API server; the code is read by the real program."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.cluster.documents import environment_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect

from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.reconcile.reconcile_kinds import READY_SECONDS, WAITING_SECONDS, reconcile_environment

KEY = ("team-a", "maze")
CONFIG_MAP = "/api/v1/namespaces/team-a/configmaps/maze"
STATUS = "/apis/rl-operator.dev/v1alpha1/namespaces/team-a/rlenvironments/maze/status"
GOOD = "from atroposlib.envs.base import BaseEnv\n\n\nclass Maze(BaseEnv):\n    name = 'maze'\n"


@pytest.fixture
async def client(api: FakeApi, tmp_path: Path) -> AsyncIterator[KindsClient]:
    async with await connect(api, tmp_path) as client:
        caches = Caches()
        caches.environments.put(environment_document(1))
        yield KindsClient(client, caches, EventRecorder(client), print)


def clock() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def writes_back(api: FakeApi, version: int, status: dict[str, Any]) -> None:
    api.answers("PATCH", STATUS, Answer(environment_document(version) | {"status": status}))


async def test_a_missing_config_map_is_soon_looked_up_again(api: FakeApi, client: KindsClient) -> None:
    writes_back(api, 2, {})
    assert await reconcile_environment(KEY, client, clock) == WAITING_SECONDS
    conditions = {c["type"]: c for c in api.asked("PATCH", STATUS)[0].body["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "SourceNotFound"
    assert "ConfigMap team-a/maze does not exist" in conditions["Stalled"]["message"]


@pytest.mark.process
async def test_findings_are_written_once(api: FakeApi, client: KindsClient) -> None:
    api.answers("GET", CONFIG_MAP, Answer({"data": {"maze.py": GOOD}}))
    writes_back(api, 2, {})
    assert await reconcile_environment(KEY, client, clock) == READY_SECONDS
    (first,) = api.asked("PATCH", STATUS)
    assert (first.body["status"]["className"], first.body["status"]["entry"]) == ("Maze", "maze.py")

    client._caches.environments.put(environment_document(3) | {"status": first.body["status"]})
    assert await reconcile_environment(KEY, client, clock) == READY_SECONDS
    assert len(api.asked("PATCH", STATUS)) == 1


@pytest.mark.process
async def test_requirements_are_not_installed_on_a_cluster_and_that_is_said(api: FakeApi, client: KindsClient) -> None:
    api.answers("GET", CONFIG_MAP, Answer({"data": {"maze.py": GOOD, "requirements.txt": "numpy\n"}}))
    writes_back(api, 2, {})
    assert await reconcile_environment(KEY, client, clock) == READY_SECONDS
    (written,) = api.asked("PATCH", STATUS)
    [ready] = [each for each in written.body["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["status"] == "True"
    assert "Its requirements.txt is not installed on a cluster" in ready["message"]
    assert "spec.image" in ready["message"]


async def test_an_openenv_server_is_ready_without_being_read(api: FakeApi, client: KindsClient) -> None:
    document = environment_document(2)
    document["spec"] = {"openenv": {"image": "registry.test/echo:1"}}
    client._caches.environments.put(document)
    writes_back(api, 3, {})
    assert await reconcile_environment(KEY, client, clock) is None
    (written,) = api.asked("PATCH", STATUS)
    status = written.body["status"]
    [ready] = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "ServerNamed")
    assert ready["message"].startswith("Sessions of the OpenEnv server registry.test/echo:1, ")
    assert (status["entry"], status["className"]) == ("openenv", "OpenEnvEnvironment")

    client._caches.environments.put(environment_document(4) | {"spec": document["spec"], "status": status})
    assert await reconcile_environment(KEY, client, clock) is None
    assert len(api.asked("PATCH", STATUS)) == 1, "what is known is written once"


async def test_an_openenv_server_that_cannot_be_is_stalled(api: FakeApi, client: KindsClient) -> None:
    document = environment_document(2)
    document["spec"] = {"openenv": {"url": "http://169.254.169.254"}}
    client._caches.environments.put(document)
    writes_back(api, 3, {})
    assert await reconcile_environment(KEY, client, clock) is None
    (written,) = api.asked("PATCH", STATUS)
    conditions = {c["type"]: c for c in written.body["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "InvalidServer"
    assert conditions["Stalled"]["message"].startswith('spec.openenv.url is "http://169.254.169.254": ')


async def test_missing_or_deleted_environments_are_skipped(api: FakeApi, client: KindsClient) -> None:
    assert await reconcile_environment(("team-a", "other"), client, clock) is None
    going = environment_document(2)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    client._caches.environments.put(going)
    assert await reconcile_environment(KEY, client, clock) is None
    assert api.requests == []
