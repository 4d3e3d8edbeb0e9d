"""Reconciles of RLRuntimes and RLEnvironments over a scripted API server; code is read by the real program."""

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.rl_operator import samples
from tests.unit.rl_operator.cluster.documents import environment_document, runtime_document
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.cache.caches import Caches, Catalogs
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.reconcile.reconcile_kinds import (
    READY_SECONDS,
    TROUBLE_SECONDS,
    WAITING_SECONDS,
    read_image,
    reconcile_environment,
    reconcile_runtime,
    tidy,
)
from rl_operator.render.catalog_and_history import ImageCatalog
from rl_operator.render.discovery import discovery_pod, runtime_reading
from rl_operator.status.image_reading import FIRST_PAUSE_SECONDS, Wait

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KINDS = "/apis/rl-operator.dev/v1alpha1"
RUNTIME, ENVIRONMENT = f"{KINDS}/rlruntimes/tiny/status", f"{KINDS}/namespaces/team-a/rlenvironments/maze/status"
CONFIG_MAPS = "/api/v1/namespaces/ops/configmaps"
CODE = "/api/v1/namespaces/team-a/configmaps/maze"
PODS = "/api/v1/namespaces/ops/pods"


def listed(*pods: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": "9"}, "items": list(pods)})


@pytest.fixture
async def kinds_client(client: ClusterClient) -> KindsClient:
    caches = Caches(Catalogs(frozenset({samples.TINY.spec.image})))
    return KindsClient(client, caches, EventRecorder(client), print)


@pytest.fixture
def written_kinds(api: FakeApi) -> FakeApi:
    """It takes statuses, and has no pods that read images."""
    api.answers("PATCH", RUNTIME, Answer(runtime_document(2)))
    api.answers("PATCH", ENVIRONMENT, Answer(environment_document(2) | {"status": {}}))
    api.answers("GET", PODS, listed())
    return api


def written(api: FakeApi, path: str) -> tuple[dict[str, Any], dict[str, str], str]:
    """The status, its conditions' reasons, and the first one's message."""
    (patch,) = api.asked("PATCH", path)
    status, conditions = patch.body["status"], patch.body["status"]["conditions"]
    return status, {each["type"]: each["reason"] for each in conditions}, conditions[0]["message"]


async def look(client: KindsClient, document: dict[str, Any]) -> float | None:
    """One reconcile of the object, as it is now."""
    if document["kind"] == "RLRuntime":
        client._caches.runtimes.put(document)
        return await reconcile_runtime(("", "tiny"), client, lambda: NOW, "ops")
    client._caches.environments.put(document)
    return await reconcile_environment(("team-a", "maze"), client, lambda: NOW)


# --- runtimes ---------------------------------------------------------------------------------------------------------
CATALOG = {"namespace": "ops", "name": "rl-catalog-tiny", "uid": "c", "resourceVersion": "1"}


def keep_catalogs(api: FakeApi) -> None:
    created = {"metadata": CATALOG | {"ownerReferences": [{"uid": "tiny", "controller": True}]}}
    api.answers("POST", CONFIG_MAPS, Answer(created, 201))
    api.answers("PATCH", f"{CONFIG_MAPS}/rl-catalog-tiny", Answer({}))


async def test_the_shipped_catalog_is_written(written_kinds: FakeApi, kinds_client: KindsClient) -> None:
    keep_catalogs(written_kinds)
    assert await look(kinds_client, runtime_document(1)) is None
    status, reasons, _ = written(written_kinds, RUNTIME)
    assert reasons == {"Ready": "CatalogRead"}
    assert status["fieldsRef"] == {"namespace": "ops", "name": "rl-catalog-tiny"}
    assert [each["name"] for each in status["environments"]] == [each.name for each in samples.CATALOG.outline]


@pytest.mark.parametrize(
    ("code", "generation", "ours"),
    [(200, 1, False), (403, 1, False), (404, 1, True), (200, 2, True)],
    ids=["there", "not for us to read", "gone", "of an older spec"],
)
async def test_two_operators_do_not_overwrite_each_other(
    written_kinds: FakeApi, kinds_client: KindsClient, code: int, generation: int, ours: bool
) -> None:
    """The other one has written its own location."""
    keep_catalogs(written_kinds)
    theirs = "/api/v1/namespaces/theirs/configmaps/rl-catalog-tiny"
    written_kinds.answers("GET", theirs, Answer({"metadata": CATALOG, "message": "no"}, code))
    document = runtime_document(1)
    document["metadata"]["generation"] = generation
    document["status"] = {"observedGeneration": 1, "fieldsRef": {"namespace": "theirs", "name": "rl-catalog-tiny"}}
    await look(kinds_client, document)
    assert bool(written_kinds.asked("PATCH", RUNTIME)) is ours


async def test_a_missing_permission_is_reported_along_with_what_is_known(
    written_kinds: FakeApi, kinds_client: KindsClient
) -> None:
    written_kinds.answers("POST", CONFIG_MAPS, Answer({"message": "may not create configmaps"}, 403))
    assert await look(kinds_client, runtime_document(1)) == TROUBLE_SECONDS
    status, reasons, message = written(written_kinds, RUNTIME)
    assert reasons == {"Reconciling": "CatalogNotWritten"}
    assert "may not create configmaps" in message
    assert status["environments"]
    assert "fieldsRef" not in status


@pytest.mark.parametrize("field", ["image", "environmentImage"])
async def test_an_unread_image_of_the_environments_gets_a_pod(
    written_kinds: FakeApi, kinds_client: KindsClient, field: str
) -> None:
    """Of two images: the other one's catalog is the one that ships, and says nothing about what runs."""
    written_kinds.answers("POST", PODS, Answer({}, 201))
    assert await look(kinds_client, runtime_document(1, **{field: "theirs:1"})) is not None
    status, reasons, message = written(written_kinds, RUNTIME)
    assert (reasons, "environments" in status) == ({"Reconciling": "Discovering"}, False)
    assert "theirs:1" in message
    (pod,) = written_kinds.asked("POST", PODS)
    assert pod.body["spec"]["containers"][0]["image"] == "theirs:1"


async def test_a_changed_image_of_the_environments_is_read_again(
    written_kinds: FakeApi, kinds_client: KindsClient
) -> None:
    written_kinds.answers("POST", PODS, Answer({}, 201))
    for version, image in ((1, "theirs:1"), (3, "theirs:2")):  # version 2 has the status of the first look
        await look(kinds_client, runtime_document(version, environmentImage=image))
    read = [pod.body["spec"]["containers"][0]["image"] for pod in written_kinds.asked("POST", PODS)]
    assert read == ["theirs:1", "theirs:2"]


INVALID = {
    "settings": ({"locked": {"trainer": {"lerning_rate": 1, "lora_rank": "x"}}}, ["lerning_rate", "lora_rank"]),
    "a newer release's": ({"novelty": 1}, ["spec.novelty"]),
}


@pytest.mark.parametrize(("spec", "named"), INVALID.values(), ids=INVALID)
async def test_an_invalid_runtime_is_reported_and_its_image_is_not_read(
    written_kinds: FakeApi, kinds_client: KindsClient, spec: dict[str, Any], named: list[str]
) -> None:
    assert await look(kinds_client, runtime_document(1, image="theirs:1", **spec)) is None
    _, reasons, message = written(written_kinds, RUNTIME)
    assert reasons == {"Ready": "RuntimeInvalid", "Stalled": "RuntimeInvalid"}
    assert all(field in message for field in named)
    assert not written_kinds.asked("POST", PODS)


# --- environments -----------------------------------------------------------------------------------------------------
GOOD = "from atroposlib.envs.base import BaseEnv\n\n\nclass Maze(BaseEnv):\n    name = 'maze'\n"


async def test_a_missing_config_map_is_soon_looked_up_again(written_kinds: FakeApi, kinds_client: KindsClient) -> None:
    assert await look(kinds_client, environment_document(1)) == WAITING_SECONDS
    _, reasons, message = written(written_kinds, ENVIRONMENT)
    assert reasons["Stalled"] == "SourceNotFound"
    assert "ConfigMap team-a/maze does not exist" in message


@pytest.mark.process
@pytest.mark.parametrize("more", [{}, {"requirements.txt": "numpy\n"}], ids=["", "with requirements"])
async def test_findings_are_written_once(
    written_kinds: FakeApi, kinds_client: KindsClient, more: dict[str, str]
) -> None:
    """Requirements are not installed on a cluster, and that is said."""
    written_kinds.answers("GET", CODE, Answer({"data": {"maze.py": GOOD, **more}}))
    assert await look(kinds_client, environment_document(1)) == READY_SECONDS
    status, reasons, message = written(written_kinds, ENVIRONMENT)
    assert (status["className"], status["entry"], reasons.keys()) == ("Maze", "maze.py", {"Ready"})
    assert ("Its requirements.txt is not installed on a cluster" in message) is bool(more)
    assert ("spec.image" in message) is bool(more)

    assert await look(kinds_client, environment_document(3) | {"status": status}) == READY_SECONDS
    assert len(written_kinds.asked("PATCH", ENVIRONMENT)) == 1


async def test_an_openenv_server_is_ready_without_being_read(written_kinds: FakeApi, kinds_client: KindsClient) -> None:
    spec = {"openenv": {"image": "registry.test/echo:1"}}
    assert await look(kinds_client, environment_document(1, **spec)) is None
    status, reasons, message = written(written_kinds, ENVIRONMENT)
    assert (reasons, status["entry"], status["className"]) == (
        {"Ready": "ServerNamed"}, "openenv", "OpenEnvEnvironment",
    )  # fmt: skip
    assert message.startswith("Sessions of the OpenEnv server registry.test/echo:1, ")

    assert await look(kinds_client, environment_document(4, **spec) | {"status": status}) is None
    assert len(written_kinds.asked("PATCH", ENVIRONMENT)) == 1, "what is known is written once"


async def test_an_openenv_server_that_cannot_be_is_stalled(written_kinds: FakeApi, kinds_client: KindsClient) -> None:
    assert await look(kinds_client, environment_document(1, openenv={"url": "http://169.254.169.254"})) is None
    _, reasons, message = written(written_kinds, ENVIRONMENT)
    assert reasons["Stalled"] == "InvalidServer"
    assert message.startswith('spec.openenv.url is "http://169.254.169.254": ')


async def test_missing_or_deleted_environments_are_skipped(api: FakeApi, kinds_client: KindsClient) -> None:
    assert await reconcile_environment(("team-a", "other"), kinds_client, lambda: NOW) is None
    going = environment_document(2)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await look(kinds_client, going) is None
    assert api.requests == []


# --- images -----------------------------------------------------------------------------------------------------------
READING = runtime_reading(samples.make_runtime(image="theirs:1"), "ops")


def pod(attempt: int, phase: str, code: int = 0, **labels: str) -> dict[str, Any]:
    document = copy.deepcopy(discovery_pod(READING, attempt))
    metadata = document["metadata"]
    metadata |= {"uid": f"u{attempt}", "creationTimestamp": "2026-01-02T03:04:05Z"}
    metadata["labels"] |= labels
    state = {"terminated": {"exitCode": code, "finishedAt": "2026-01-02T03:04:05Z"}}
    status = {"phase": phase, "containerStatuses": [{"imageID": "sha256:1", "state": state}]}
    return document | {"status": status}


async def test_a_missing_pod_is_created(api: FakeApi, kinds_client: KindsClient) -> None:
    api.answers("GET", PODS, listed())
    api.answers("POST", PODS, Answer(pod(1, "Pending"), 201))
    step = await read_image(READING, kinds_client, NOW)
    assert isinstance(step, Wait)
    assert step.reason == "Discovering"
    assert api.asked("POST", PODS)[0].body["metadata"]["name"] == f"rl-discovery-{READING.key}-1"


async def test_the_output_of_a_successful_pod_is_the_catalog(api: FakeApi, kinds_client: KindsClient) -> None:
    api.answers("GET", PODS, listed(pod(1, "Succeeded")))
    name = f"{PODS}/rl-discovery-{READING.key}-1"
    api.answers("GET", f"{name}/log", Answer(text=json.dumps({"environments": [{"name": "maze"}]})))
    found = await read_image(READING, kinds_client, NOW)
    assert isinstance(found, ImageCatalog)
    assert (list(found.catalog.names), found.image_id) == (["maze"], "sha256:1")
    assert api.asked("GET", f"{name}/log")[0].query["limitBytes"] == str(4 * 2**20)
    assert not api.asked("DELETE", name), "it stays until the catalog is written down"


async def test_a_failure_is_retried_later_and_the_old_pod_is_deleted(api: FakeApi, kinds_client: KindsClient) -> None:
    api.answers("GET", PODS, listed(pod(1, "Failed", 1)))
    assert isinstance(await read_image(READING, kinds_client, NOW), Wait)
    assert not api.asked("POST", PODS)
    api.answers("POST", PODS, Answer(pod(2, "Pending"), 201))
    api.answers("DELETE", f"{PODS}/rl-discovery-{READING.key}-1", Answer({}))
    await read_image(READING, kinds_client, NOW + timedelta(seconds=FIRST_PAUSE_SECONDS))
    assert api.asked("POST", PODS)[0].body["metadata"]["name"].endswith("-2")
    (deleted,) = api.asked("DELETE", f"{PODS}/rl-discovery-{READING.key}-1")
    assert deleted.body["preconditions"]["uid"] == "u1"


async def test_cleanup_deletes_pods_that_were_read_or_are_no_longer_wanted(
    api: FakeApi, kinds_client: KindsClient
) -> None:
    before, others = pod(2, "Failed", 1, **{"rl-operator.dev/discovery": "before"}), pod(3, "Pending")
    others["metadata"]["labels"]["rl-operator.dev/discovery"] = "other"
    others["metadata"]["ownerReferences"][0]["uid"] = "somebody"
    api.answers("GET", PODS, listed(pod(1, "Succeeded"), before, others))
    await tidy(READING, kinds_client)
    deleted = [request.body["preconditions"]["uid"] for request in api.requests if request.method == "DELETE"]
    assert deleted == ["u1", "u2"]
