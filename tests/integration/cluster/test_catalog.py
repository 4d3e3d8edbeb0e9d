"""What an image holds: read once by a pod, kept in a ConfigMap, waited for by runs; and invalid runtimes."""

import contextlib
import json
from typing import Any

import pytest
import yaml
from tests.integration.cluster.admin import RUNTIMES, AdminClient, ApiError
from tests.integration.cluster.control_plane import OPERATOR_NAMESPACE, POWERLESS_TOKEN, ControlPlane
from tests.integration.cluster.node import LogNode
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.readers import IMAGE_ID, Readers, field, printed
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

from rl_operator.documents.shipped import bundled_runtimes

CONFIG_MAPS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps"


@pytest.fixture
def readers(control_plane: ControlPlane, node: LogNode) -> Readers:
    return Readers(control_plane.admin, OPERATOR_NAMESPACE, node)


def status_of(admin: AdminClient, runtime: str) -> dict[str, Any]:
    status: dict[str, Any] = admin.get(f"{RUNTIMES}/{runtime}")["status"]
    return status


def until(admin: AdminClient, runtime: str, type_: str, reason: str, word: str = "") -> dict[str, Any]:
    """The runtime's status, once its condition is true for that reason, with that word in its message."""

    def look() -> dict[str, Any] | None:
        status = status_of(admin, runtime)
        for condition in status.get("conditions", []):
            said = (condition["type"], condition["status"], condition["reason"])
            if said == (type_, "True", reason) and word in condition["message"]:
                return status
        return None

    return wait_for(f"runtime {runtime} is {type_} because of {reason} ({word!r})", look)


def catalog_of(admin: AdminClient, runtime: str) -> dict[str, Any]:
    config_map = admin.get(f"{CONFIG_MAPS}/rl-catalog-{runtime}")
    catalog: dict[str, Any] = json.loads(config_map["data"]["catalog.json"])
    return catalog


def discoveries(plane: ControlPlane) -> list[str]:
    """Names of all pods that were ever created to read an image of a runtime."""
    writes = plane.operator_writes(OPERATOR_NAMESPACE)
    return [write.name for write in writes if (write.verb, write.resource, write.code) == ("create", "pods", 201)]


def test_the_shipped_image_is_known_at_once(runs: RunsNamespace, control_plane: ControlPlane) -> None:
    before = discoveries(control_plane)
    runtime = f"known-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime, bounds={"env": {"group_size": {"min": 2, "max": 64}}})
    status = until(runs.admin, runtime, "Ready", "CatalogRead", "whether image tinker-atropos:dev can be pulled")
    assert "sort_digits" in {environment["name"] for environment in status["environments"]}
    assert status["fieldsRef"] == {"namespace": OPERATOR_NAMESPACE, "name": f"rl-catalog-{runtime}"}
    with contextlib.closing(AdminClient("127.0.0.1", control_plane.port, POWERLESS_TOKEN)) as anybody:
        environment = catalog_of(anybody, runtime)["environments"][0]
        with pytest.raises(ApiError, match="403"):
            anybody.items(CONFIG_MAPS)
    fields = {field["name"]: field for field in environment["fields"]}
    assert fields["tokenizer_name"]["locked"] == "bundled"
    assert fields["group_size"]["bounds"] == {"min": 2, "max": 64}
    assert discoveries(control_plane) == before


def test_another_image_is_read_once_by_a_pod_and_runs_wait_for_it(
    runs: RunsNamespace, readers: Readers, control_plane: ControlPlane, operator_process: OperatorProcess
) -> None:
    image, runtime = f"registry.test/{runs.namespace}:1", f"other-{runs.namespace}"
    before = len(discoveries(control_plane))
    install_runtime(runs.admin, "tiny", name=runtime, image=image)
    runs.apply(runtime=runtime, environment="maze", config={"total_steps": TOTAL_STEPS, "walls": 3})
    pod = readers.until_there(image)
    assert pod["spec"]["automountServiceAccountToken"] is False
    runs.until_reason("Reconciling", "CatalogPending")
    readers.end(pod["metadata"]["name"], printed("maze", fields=[field("walls", "int", 2, minimum=0)]))

    status = until(runs.admin, runtime, "Ready", "CatalogRead", f"1 environment in image {image}.")
    assert status["environments"] == [{"name": "maze", "description": "Learn maze."}]
    assert status["imageID"] == IMAGE_ID
    runs.succeed(runs.until_pod())
    readers.until_gone(image)

    # Neither a runtime of the same image nor a restarted operator reads it again.
    operator_process.kill()
    operator_process.start()
    install_runtime(runs.admin, "tiny", name=f"{runtime}-2", image=image)
    until(runs.admin, f"{runtime}-2", "Ready", "CatalogRead")
    assert len(discoveries(control_plane)) == before + 1

    # Unless it is requested.
    runs.admin.patch(f"{RUNTIMES}/{runtime}", {"metadata": {"annotations": {"rl-operator.dev/rediscover": "2"}}})
    readers.end(readers.until_there(image)["metadata"]["name"], printed("maze", "labyrinth"))
    for name in (runtime, f"{runtime}-2"):
        wait_for(f"{name} knows", lambda name=name: len(catalog_of(runs.admin, name)["environments"]) == 2)
    readers.until_gone(image)
    assert len(discoveries(control_plane)) == before + 2


def test_environments_come_from_their_own_image_and_a_started_run_keeps_it(
    runs: RunsNamespace, readers: Readers, control_plane: ControlPlane
) -> None:
    """Their fields may be nested: what the run and the runtime say of them is rendered nested."""
    first, second = (f"registry.test/{runs.namespace}:{version}" for version in ("one", "two"))
    runtime = f"tasksets-{runs.namespace}"
    found = printed("verifiers/maze", fields=[field("taskset.walls", "int", 2), field("taskset.level", "int", 1)])
    nested = {"locked": {"env": {"tokenizer_name": "bundled", "taskset": {"level": 7}}}}
    install_runtime(runs.admin, "tiny", name=runtime, environmentImage=first, **nested)
    readers.end(readers.until_there(first)["metadata"]["name"], found)
    until(runs.admin, runtime, "Ready", "CatalogRead", first)
    config = {"total_steps": TOTAL_STEPS, "taskset": {"walls": 3}}
    runs.apply(runtime=runtime, environment="verifiers/maze@1.2.0", config=config)

    path = f"/api/v1/namespaces/{runs.namespace}"
    pod = runs.until_pod()
    spec = runs.admin.get(f"{path}/pods/{pod}")["spec"]
    images = {each["name"]: each["image"] for each in (*spec["initContainers"], *spec["containers"])}
    ours = bundled_runtimes()["tiny"].spec.image
    assert images == {"api": ours, "trainer": ours, "environment": first}
    rendered = runs.admin.get(f"{path}/configmaps/{runs.status()['configMapName']}")["data"]["config.yaml"]
    assert yaml.safe_load(rendered)["env"]["taskset"] == {"level": 7, "walls": 3}

    runs.admin.patch(f"{RUNTIMES}/{runtime}", {"spec": {"environmentImage": second}})
    readers.end(readers.until_there(second)["metadata"]["name"], found)
    until(runs.admin, runtime, "Ready", "CatalogRead", second)
    assert runs.status()["podName"] == pod
    runs.succeed(pod)


def test_an_unreadable_image_is_named_to_waiting_runs(runs: RunsNamespace, readers: Readers) -> None:
    image, runtime = f"registry.test/{runs.namespace}:none", f"absent-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime, image=image)
    runs.apply(runtime=runtime)
    pod = readers.until_there(image)["metadata"]["name"]
    readers.cannot_start(pod, "ImagePullBackOff", "no such image")
    status = until(runs.admin, runtime, "Reconciling", "DiscoveryFailed", "no such image")
    ready = next(condition for condition in status["conditions"] if condition["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "DiscoveryFailed")
    assert "no such image" in ready["message"]
    runs.until_reason("Reconciling", "CatalogPending", word=runtime)
    runs.until_reason("Reconciling", "CatalogPending", word="no such image")
    readers.end(pod, "sh: tinker-atropos: not found", code=127, bind=False)
    until(runs.admin, runtime, "Reconciling", "DiscoveryFailed", "exit code 127")
    assert not runs.kubelet.pods()


def test_a_program_with_other_output_is_reported(runs: RunsNamespace, readers: Readers) -> None:
    image, runtime = f"registry.test/{runs.namespace}:odd", f"odd-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime, image=image)
    readers.end(readers.until_there(image)["metadata"]["name"], "hello\n")
    until(runs.admin, runtime, "Reconciling", "DiscoveryFailed", "printed no catalog")


def test_an_invalid_runtime_is_named_and_fixed(runs: RunsNamespace) -> None:
    runtime = f"nonsense-{runs.namespace}"
    locked = {"env": {"tokenizer_name": "bundled"}, "trainer": {"lerning_rate": 1}}
    install_runtime(runs.admin, "tiny", name=runtime, locked=locked)
    until(runs.admin, runtime, "Stalled", "RuntimeInvalid", "spec.locked.trainer.lerning_rate")
    runs.apply(runtime=runtime)
    refusal = runs.until_phase("Pending")["refusals"][0]
    assert (refusal["code"], refusal["field"]) == ("RuntimeInvalid", "spec.runtime")
    assert "spec.locked.trainer.lerning_rate" in refusal["hint"]
    runs.admin.patch(f"{RUNTIMES}/{runtime}", {"spec": {"locked": {"trainer": {"lerning_rate": None}}}})
    runs.succeed(runs.until_pod())
    until(runs.admin, runtime, "Ready", "CatalogRead")


def test_an_unrelated_config_map_stays_unchanged_and_runs_start_anyway(runs: RunsNamespace) -> None:
    runtime = f"taken-{runs.namespace}"
    theirs = {"metadata": {"name": f"rl-catalog-{runtime}"}, "data": {"mine": "1"}}
    runs.admin.post(CONFIG_MAPS, theirs)
    install_runtime(runs.admin, "tiny", name=runtime)
    until(runs.admin, runtime, "Reconciling", "CatalogNotWritten", "is not this runtime's")
    runs.apply(runtime=runtime)
    runs.succeed(runs.until_pod())
    assert runs.admin.get(f"{CONFIG_MAPS}/rl-catalog-{runtime}")["data"] == {"mine": "1"}


def test_a_changed_catalog_is_repaired(runs: RunsNamespace, control_plane: ControlPlane) -> None:
    runtime = f"edited-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime)
    until(runs.admin, runtime, "Ready", "CatalogRead")

    def writes() -> int:  # not of other tests' runtimes, which may be tried again at any time
        return [call.name for call in control_plane.operator_writes(OPERATOR_NAMESPACE)].count(f"rl-catalog-{runtime}")

    before = writes()
    runs.admin.patch(f"{CONFIG_MAPS}/rl-catalog-{runtime}", {"data": {"catalog.json": "{}", "more": "1"}})
    runs.admin.patch(f"{RUNTIMES}/{runtime}", {"metadata": {"labels": {"looked": "at"}}})
    wait_for("it is whole again", lambda: "environments" in catalog_of(runs.admin, runtime))
    wait_for("the write is in the audit log, which may be later than what it wrote", lambda: writes() > before)
    stays("nothing more is written", lambda: writes() == before + 1)
