"""What is stored of an image, and read again after a restart."""

import json

import pytest
from tests.unit.rl_operator import samples

from rl_operator.api.catalog import Catalog
from rl_operator.api.names import REDISCOVER_ANNOTATION
from rl_operator.api.runtime import Runtime
from rl_operator.operator_errors import InvalidError
from rl_operator.render.catalog_and_history import (
    CATALOG_KEY,
    MAX_BYTES,
    ImageCatalog,
    catalog_config_map,
    stored_catalog,
)

FIELDS = [
    {"name": "walls", "type": "int", "default": 2, "description": "How many.", "minimum": 0},
    {"name": "seed", "type": "int | None", "default": None},
    {"name": "port", "type": "int"},
]
CATALOG = Catalog.model_validate(
    {"environments": [{"name": "maze", "class_name": "Maze", "fields": FIELDS}], "warnings": ["b.py cannot be read"]}
)


def runtime(**spec: object) -> Runtime:
    made = samples.make_runtime(image="registry.test/envs:1", **spec)
    return made.with_changes(metadata=made.metadata.with_changes(uid="u1", annotations={REDISCOVER_ANNOTATION: "2"}))


def large(count: int, description: str = "") -> Catalog:
    fields = [{"name": f"field_{n}", "type": "int", "description": description} for n in range(count)]
    return Catalog.model_validate({"environments": [{"name": "large", "fields": fields}]})


def test_every_known_field_is_there_with_its_lock_and_bounds() -> None:
    platform = runtime(locked={"env": {"walls": 4}}, bounds={"env": {"seed": {"min": 0}}})
    config_map = catalog_config_map(platform, "ops", ImageCatalog(CATALOG))
    written = json.loads(config_map["data"]["catalog.json"])
    assert written["environments"][0]["fields"] == [
        {**FIELDS[0], "locked": 4},
        {**FIELDS[1], "bounds": {"min": 0}},
        FIELDS[2],
    ]
    assert written["warnings"] == ["b.py cannot be read"]
    assert config_map["metadata"]["name"] == "rl-catalog-lab"
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_written_catalogs_are_read_back() -> None:
    found = ImageCatalog(CATALOG, "sha256:1")
    stored = stored_catalog(catalog_config_map(runtime(), "ops", found))
    assert stored is not None
    assert (stored.image, stored.rediscover, stored.found) == ("registry.test/envs:1", "2", found)


@pytest.mark.parametrize("data", [{}, {"catalog.json": "{"}, {"catalog.json": '{"environments": 1}'}], ids=str)
def test_an_invalid_catalog_is_none(data: dict[str, str]) -> None:
    assert stored_catalog({"metadata": {}, "data": data}) is None


def test_descriptions_are_dropped_for_space_and_then_it_is_refused() -> None:
    text = catalog_config_map(runtime(), "ops", ImageCatalog(large(500, "d" * 3000)))["data"]["catalog.json"]
    assert len(text.encode()) < MAX_BYTES
    assert "description" not in json.loads(text)["environments"][0]["fields"][0]
    with pytest.raises(InvalidError, match=r"take \d+ kB and a ConfigMap has room for 900 kB"):
        catalog_config_map(runtime(), "ops", ImageCatalog(large(50_000)))


def test_a_stored_catalog_still_tells_common_fields_once() -> None:
    """A hundred environments with fifty fields each would not fit into a ConfigMap."""
    common = [{"name": name, "type": "int", "default": 0} for name in ("size", "seed")]
    walls = {"name": "walls", "type": "int"}
    members = [
        {"name": f"gym/{name}", "family": "gym", "fields": fields} for name, fields in (("a", [walls]), ("b", []))
    ]
    catalog = Catalog.model_validate({"families": [{"name": "gym", "fields": common}], "environments": members})
    stored = catalog_config_map(runtime(locked={"env": {"seed": 3}}), "ops", ImageCatalog(catalog))
    wire = json.loads(stored["data"][CATALOG_KEY])
    assert [field["name"] for field in wire["families"][0]["fields"]] == ["size", "seed"]
    assert wire["families"][0]["fields"][1]["locked"] == 3
    assert [len(each["fields"]) for each in wire["environments"]] == [1, 0]
    read = stored_catalog(stored)
    assert read is not None
    assert read.found.catalog.named("gym/a") == catalog.named("gym/a")


def test_a_nested_field_has_its_lock_and_bounds_by_its_dotted_name() -> None:
    platform = runtime(
        environmentImage="verifiers:1",
        locked={"env": {"taskset": {"level": "hard"}}},
        bounds={"env": {"taskset.size": {"max": 500}}},
    )
    stored = catalog_config_map(platform, "ops", ImageCatalog(samples.tasksets()))
    content = json.loads(stored["data"]["catalog.json"])
    fields = {field["name"]: field for each in content["environments"] for field in each["fields"]}
    assert (fields["taskset.level"]["locked"], fields["taskset.size"]["bounds"]) == ("hard", {"max": 500})
    found = stored_catalog(stored)
    assert found is not None
    assert found.image == "verifiers:1"
