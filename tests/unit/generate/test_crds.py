import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generate.crds import crd_files, custom_resource_definitions, generated_files
from tinker_atropos.trajectory_api.service.held_leases import MAX_LEASES

DEFINITIONS = custom_resource_definitions()


def schema_of(plural: str) -> dict[str, Any]:
    schema: dict[str, Any] = DEFINITIONS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def places(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from places(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from places(schema[key], f"{path}[]")


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_every_field_has_a_sentence(plural: str) -> None:
    bare = [path for path, place in places(schema_of(plural)) if "description" not in place and "[]" not in path]
    assert bare == [".metadata"]


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_every_position_has_a_type_or_keeps_unknown_fields(plural: str) -> None:
    for path, place in places(schema_of(plural)):
        assert "type" in place or any(key.startswith("x-kubernetes-") for key in place), path
        assert not place.keys() & {"$ref", "$defs", "anyOf", "title", "const"}, path


BOUNDS = {"string": ("maxLength", "enum"), "array": ("maxItems",), "object": ("maxProperties", "properties")}
ANYTHING = ("maxLength", "maxItems", "maxProperties")


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_every_text_list_and_mapping_is_bounded(plural: str) -> None:
    """What the API server accepts is read by the operator, which serves everybody."""
    for path, place in places(schema_of(plural)):
        if path in ("", ".metadata", ".apiVersion", ".kind"):
            continue  # the API server's own
        if "type" in place:
            bounds = BOUNDS.get(place["type"])
            assert bounds is None or place.keys() & set(bounds), path
        elif "x-kubernetes-int-or-string" in place:
            assert "maxLength" in place, path
        else:
            assert place.keys() >= set(ANYTHING), path


@pytest.mark.parametrize("name", crd_files())
def test_size(name: str) -> None:
    assert len(crd_files()[name].encode()) < 200_000


def test_only_the_status_itself_has_a_default() -> None:
    status = schema_of("rltrainingruns")["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    assert [path for path, place in places(status) if "default" in place and path] == []


def test_defaults_and_nullable() -> None:
    spec = schema_of("rltrainingruns")["properties"]["spec"]["properties"]
    assert {name: field["default"] for name, field in spec.items() if "default" in field} == {
        "runtime": "default",
        "backoffLimit": 3,
        "startDeadlineSeconds": 1800,
        "progressDeadlineSeconds": 3600,
        "environmentReplicas": 1,
        "onLostCheckpoint": "Fail",
    }
    nullable = [name for name, field in spec.items() if field.get("nullable")]
    assert nullable == ["startDeadlineSeconds", "progressDeadlineSeconds"]


def test_a_run_may_have_as_many_environments_as_its_trajectory_api_admits() -> None:
    spec = schema_of("rltrainingruns")["properties"]["spec"]["properties"]
    assert spec["environmentReplicas"]["maximum"] == MAX_LEASES


@pytest.mark.process
def test_command_writes_and_compares(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "generate.crds", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": "operator"}
    missing = subprocess.run([*command, "--check"], env=env, capture_output=True, text=True, check=False)
    assert (missing.returncode, "not current" in missing.stderr) == (1, True)
    subprocess.run(command, env=env, check=True)
    subprocess.run([*command, "--check"], env=env, check=True)
    assert {file.name for file in tmp_path.iterdir()} == set(generated_files())


def test_committed_files_are_current() -> None:
    assert {name: (Path("crds") / name).read_text() for name in generated_files()} == generated_files()
