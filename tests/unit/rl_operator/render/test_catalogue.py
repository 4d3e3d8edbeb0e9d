"""What is written down of an image, and read again after a restart."""

import json

import pytest
from tests.unit.rl_operator import samples

from rl_operator.api.catalogue import Catalogue
from rl_operator.api.names import REDISCOVER_ANNOTATION
from rl_operator.api.runtime import Runtime
from rl_operator.errors import InvalidError
from rl_operator.render.catalogue import MAX_BYTES, ImageCatalogue, catalogue_config_map, stored_catalogue

FIELDS = [
    {"name": "walls", "type": "int", "default": 2, "description": "How many.", "minimum": 0},
    {"name": "seed", "type": "int | None", "default": None},
    {"name": "port", "type": "int"},
]
CATALOGUE = Catalogue.model_validate(
    {"environments": [{"name": "maze", "class_name": "Maze", "fields": FIELDS}], "warnings": ["b.py cannot be read"]}
)


def runtime(**spec: object) -> Runtime:
    made = samples.make_runtime(image="registry.test/envs:1", **spec)
    return made.with_changes(metadata=made.metadata.with_changes(uid="u1", annotations={REDISCOVER_ANNOTATION: "2"}))


def large(count: int, description: str = "") -> Catalogue:
    fields = [{"name": f"field_{n}", "type": "int", "description": description} for n in range(count)]
    return Catalogue.model_validate({"environments": [{"name": "large", "fields": fields}]})


def test_every_field_is_there_with_its_lock_and_bounds_and_nothing_that_is_not_known() -> None:
    platform = runtime(locked={"env": {"walls": 4}}, bounds={"env": {"seed": {"min": 0}}})
    config_map = catalogue_config_map(platform, "ops", ImageCatalogue(CATALOGUE))
    written = json.loads(config_map["data"]["catalogue.json"])
    assert written["environments"][0]["fields"] == [
        {**FIELDS[0], "locked": 4},
        {**FIELDS[1], "bounds": {"min": 0}},
        FIELDS[2],
    ]
    assert written["warnings"] == ["b.py cannot be read"]
    assert config_map["metadata"]["name"] == "rl-catalogue-lab"
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_what_is_written_is_read_again() -> None:
    found = ImageCatalogue(CATALOGUE, "sha256:1")
    stored = stored_catalogue(catalogue_config_map(runtime(), "ops", found))
    assert stored is not None
    assert (stored.image, stored.rediscover, stored.found) == ("registry.test/envs:1", "2", found)


@pytest.mark.parametrize("data", [{}, {"catalogue.json": "{"}, {"catalogue.json": '{"environments": 1}'}], ids=str)
def test_what_is_no_catalogue_is_none(data: dict[str, str]) -> None:
    assert stored_catalogue({"metadata": {}, "data": data}) is None


def test_descriptions_go_when_there_is_no_room_and_then_it_is_refused() -> None:
    text = catalogue_config_map(runtime(), "ops", ImageCatalogue(large(500, "d" * 3000)))["data"]["catalogue.json"]
    assert len(text.encode()) < MAX_BYTES
    assert "description" not in json.loads(text)["environments"][0]["fields"][0]
    with pytest.raises(InvalidError, match=r"take \d+ kB and a ConfigMap has room for 900 kB"):
        catalogue_config_map(runtime(), "ops", ImageCatalogue(large(50_000)))
