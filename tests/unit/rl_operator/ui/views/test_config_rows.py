"""Each field of a run's config, and who decided it."""

from typing import Any

from tests.unit.rl_operator.samples import CATALOG, make_runtime
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.documents.yaml_text import read_yaml
from rl_operator.targets.inputs.parameters import fields_of
from rl_operator.ui.views.config_rows import ConfigRow, config_rows, run_file

RUNTIME = make_runtime(locked={"trainer": {"lora_rank": 8}}, defaults={"trainer": {"learning_rate": 0.001}})


def rows(spec: dict[str, Any], settings: dict[str, Any] | None = None, *, known: bool = True) -> dict[str, ConfigRow]:
    environment = CATALOG.named("sort_digits")
    assert environment is not None
    fields = fields_of(environment, RUNTIME) if known else ()
    return {row.path: row for row in config_rows(parsed(run_manifest(spec=spec)), fields, settings or {})}


def test_who_decided() -> None:
    found = rows({"config": {"group_size": 4}, "priority": 3}, {"config.group_size": 4, "trainer.lora_rank": 8})
    assert (found["config.group_size"].origin, found["config.group_size"].value) == ("set", "4")
    assert (found["trainer.lora_rank"].origin, found["trainer.lora_rank"].value) == ("locked", "8")
    assert (found["trainer.learning_rate"].origin, found["trainer.learning_rate"].value) == ("default", "0.001")
    assert (found["priority"].origin, found["priority"].default) == ("set", "0")
    assert found["backoffLimit"].origin == "default"
    assert found["trainer.api_key"].origin == "wired"
    assert "never write a key" in found["trainer.api_key"].meaning


def test_what_the_run_sets_comes_first() -> None:
    order = [row.origin for row in rows({"config": {"group_size": 4}}).values()]
    assert order == sorted(order, key=["set", "default", "locked", "wired"].index)


def test_an_unknown_environment_shows_what_is_in_force() -> None:
    settings = {"environment": "x", "config.level": 3, "trainer.loss": "ppo"}
    found = rows({"config": {"level": 3}}, settings, known=False)
    assert (found["config.level"].origin, found["trainer.loss"].origin) == ("set", "default")


def test_keys_are_not_shown() -> None:
    key = "tml-0123456789abcdef"
    spec = {"config": {"system_prompt": key, "api_key": "plain", "nested": {"secret_word": "x", "list": [key]}}}
    found = rows(spec, {"config.system_prompt": key}, known=False)
    assert key not in str(found)
    text = run_file(parsed(run_manifest(spec=spec)), run_manifest(spec=spec)["spec"])
    assert key not in text
    assert "plain" not in text


def test_the_file_starts_the_same_run() -> None:
    manifest = run_manifest(
        spec={"config": {"group_size": 4, "note": "x" * 500}, "wandb": {"tags": []}, "priority": 0, "suspend": True}
    )
    (document,) = read_yaml(run_file(parsed(manifest), manifest["spec"]))
    assert document["metadata"] == {"name": "sorting"}
    assert document["spec"] == {
        "environment": "sort_digits",
        "runtime": "tiny",
        "config": {"group_size": 4, "note": "x" * 500},
    }


def test_a_file_hides_nothing_and_means_the_same() -> None:
    spec = {"environment": "sort_digits", "config": {"note": "a\u202eb\x1b[31m"}}
    text = run_file(parsed(run_manifest(spec=spec)), spec)
    assert text.isascii()
    assert read_yaml(text)[0]["spec"]["config"] == spec["config"]


def test_a_long_file_is_not_shown() -> None:
    spec = {"environment": "sort_digits", "config": {"note": "x" * 30_000, "other": "x" * 30_000}}
    assert run_file(parsed(run_manifest(spec=spec)), spec) == ""
