"""What is reported of own code, and how much of it fits in a status."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.samples import make_runtime, tasksets

from rl_operator.api.catalog import Catalog, EnvironmentField
from rl_operator.api.environment import Environment
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import choose_environment
from rl_operator.api.runtime import FieldsReference, RuntimeStatus
from rl_operator.api.status_fields import Condition
from rl_operator.documents.parse import parse_environment
from rl_operator.documents.source_files import source_hash
from rl_operator.status.kind_status import (
    CONDITIONS,
    MAX_SOURCE_BYTES,
    MAX_WARNINGS,
    EnvironmentReading,
    Readiness,
    Verdict,
    environment_status,
    faults_verdict,
    files_in,
    fitting_fields,
    look_at_image,
    look_at_source,
    ready_verdict,
    reasons_of,
    runtime_status,
    still_true,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WHERE = "ConfigMap team-a/maze"
FILES = {"maze.py": "x = 1\n", "words.txt": "a b c"}
FOUND = {"name": "maze", "class_name": "Maze", "description": "Find out.", "fields": [{"name": "walls", "type": "int"}]}


def environment(generation: int = 1, **spec: Any) -> Environment:
    return parse_environment(
        {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLEnvironment",
            "metadata": {"name": "maze", "namespace": "team-a", "generation": generation},
            "spec": spec or {"source": {"configMap": {"name": "maze"}}},
        }
    )


FAULTS = {
    "missing": (None, "SourceNotFound", f"{WHERE} does not exist"),
    "binary": ({"binaryData": {"a.bin": "AA=="}, "data": FILES}, "SourceNotText", "a.bin"),
    "large": ({"data": {"a.py": "ä" * (MAX_SOURCE_BYTES // 2)}}, "SourceTooLarge", "holds 900 kB: at most 900 kB"),
}


@pytest.mark.parametrize(("config_map", "reason", "said"), FAULTS.values(), ids=FAULTS)
def test_an_unusable_config_map_says_why(config_map: dict[str, Any] | None, reason: str, said: str) -> None:
    look = files_in(WHERE, config_map)
    assert isinstance(look, EnvironmentReading)
    assert (look.verdict.readiness, look.verdict.reason) == (Readiness.STALLED, reason)
    assert said in look.verdict.message


def test_all_files_of_a_config_map_are_used() -> None:
    assert files_in(WHERE, {"data": FILES}) == FILES
    assert files_in(WHERE, {"metadata": {}}) == {}


def test_a_problem_is_reported_with_its_location_and_content_hash() -> None:
    problem = {"reason": "SyntaxError", "file": "maze.py", "line": 3, "message": "invalid syntax"}
    look = look_at_source(WHERE, FILES, None, Catalog.model_validate({"problem": problem}))
    assert look.verdict.message == "maze.py, line 3: invalid syntax"
    broken = environment()
    broken = broken.with_changes(status=environment_status(broken, look, NOW))
    assert still_true(broken, source_hash(FILES))
    assert not still_true(broken, source_hash({**FILES, "maze.py": "x = 2\n"}))
    assert not still_true(broken.with_changes(metadata=environment(2).metadata), source_hash(FILES))


def test_a_problem_without_a_file_belongs_to_the_config_map() -> None:
    problem = {"reason": "NoEnvironment", "file": "", "message": "there is no Python file"}
    look = look_at_source(WHERE, {}, None, Catalog.model_validate({"problem": problem}))
    assert look.verdict.message == f"{WHERE}: there is no Python file"
    assert look.content == source_hash({})


def test_findings_are_in_the_status() -> None:
    look = look_at_source(WHERE, FILES, None, Catalog.model_validate({"environments": [FOUND]}))
    status = environment_status(environment(5), look, NOW)
    assert (status.class_name, status.description, status.entry) == ("Maze", "Find out.", "maze.py")
    assert (status.observed_generation, status.source_hash) == (5, source_hash(FILES))
    assert [field.name for field in status.fields] == ["walls"]
    assert status.conditions[0].type == "Ready"
    assert status.draws_items is None


def test_what_draws_its_items_itself_is_said_wherever_an_own_environment_is_described() -> None:
    catalog = Catalog.model_validate({"environments": [{**FOUND, "draws_items": True}]})
    status = environment_status(environment(5), look_at_source(WHERE, FILES, None, catalog), NOW)
    own = environment(5).with_changes(status=status)
    known = choose_environment("own/maze", make_runtime(), None, own).known
    assert known is not None
    assert known.about_items.startswith("It draws its items itself (get_next_item): ")


ENTRIES = {"by name": ("maze", "Maze"), "by path": ("/app/maze.py", "Maze"), "another": ("labyrinth", None)}


@pytest.mark.parametrize(("entry", "class_name"), ENTRIES.values(), ids=ENTRIES)
def test_an_images_entry_is_a_name_or_a_file(entry: str, class_name: str | None) -> None:
    look = look_at_image(Catalog.model_validate({"environments": [FOUND]}), entry, "hash", "sha256:1")
    assert (look.found.class_name if look.found else None) == class_name
    assert (look.content, look.image_id, look.entry) == ("hash", "sha256:1", entry)
    if class_name is None:
        said = "spec.image.entry is 'labyrinth': the image has no such environment (it has: maze)."
        assert look.verdict.message == said


def fields(count: int, description: str, default: str = "") -> tuple[EnvironmentField, ...]:
    return tuple(
        EnvironmentField(name=f"f{n}", type="str", description=description, default=default) for n in range(count)
    )


def test_descriptions_are_dropped_first_when_space_runs_out() -> None:
    few = fields(60, "d" * 200)
    assert fitting_fields(few) == (few, "")
    kept, said = fitting_fields(fields(60, "d" * 5000))
    assert len(kept) == 60
    assert {field.description for field in kept} == {""}
    assert "descriptions are left out" in said
    kept, said = fitting_fields(fields(60, "", default="x" * 5000))
    assert kept == ()
    assert "60 fields are too much" in said


def test_a_status_stays_small_whatever_the_code_contains() -> None:
    found = FOUND | {"fields": [field.to_wire() for field in fields(700, "d" * 500)], "description": "long " * 50_000}
    look = look_at_source(WHERE, FILES, None, Catalog.model_validate({"environments": [found]}))
    assert len(json.dumps(environment_status(environment(), look, NOW).to_wire())) < 100_000


@pytest.mark.parametrize("entry", ["verifiers/sorting", "verifiers/sorting@1.2.0"])
def test_an_images_entry_may_be_of_a_library(entry: str) -> None:
    """Its fields are its own and those of the library."""
    look = look_at_image(tasksets(), entry, "hash", "sha256:1")
    assert look.verdict.readiness is Readiness.READY
    assert {"taskset.size", "group_size"} <= look.found.fields_by_name.keys()


def test_a_misspelled_entry_of_a_library_is_told_the_nearest() -> None:
    look = look_at_image(tasksets(), "verifiers/sorts", "hash", "sha256:1")
    assert look.verdict.message.endswith("(it has: toy, verifiers/NAME); did you mean 'verifiers/sorting'?")


def conditions_after(
    before: tuple[Condition, ...], readiness: Readiness, reason: str, generation: int = 1, hours: int = 0
) -> tuple[Condition, ...]:
    verdict, now = Verdict(readiness, reason, "A sentence."), NOW + timedelta(hours=hours)
    return runtime_status(RuntimeStatus(conditions=before), verdict, generation=generation, now=now).conditions


@pytest.mark.parametrize("readiness", Readiness)
def test_a_condition_exists_only_while_it_says_something(readiness: Readiness) -> None:
    """kstatus: an abnormal condition that is false is absent."""
    conditions = conditions_after((), readiness, "Word", 3)
    assert {c.type: c.status for c in conditions} == CONDITIONS[readiness]
    assert {(c.reason, c.message, c.observed_generation) for c in conditions} == {("Word", "A sentence.", 3)}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = conditions_after((), Readiness.STALLED, "One")
    second = conditions_after(first, Readiness.STALLED, "Two", hours=1)
    third = conditions_after(second, Readiness.READY, "Three", hours=2)
    assert {c.last_transition_time for c in second} == {"2026-01-02T03:04:05Z"}
    assert {c.last_transition_time for c in third} == {"2026-01-02T05:04:05Z"}
    assert reasons_of(first) != reasons_of(second)


REFERENCE = FieldsReference(namespace="ops", name="rl-catalog-x")


def status_of(catalog: Catalog) -> RuntimeStatus:
    return runtime_status(
        RuntimeStatus(), ready_verdict("i:1", catalog, read=True, ephemeral=False), generation=2, now=NOW,
        catalog=catalog, image_id="sha256:1", fields_ref=REFERENCE,
    )  # fmt: skip


def test_a_backend_that_keeps_nothing_is_warned_of() -> None:
    catalog = Catalog.model_validate({"environments": [{"name": "maze"}]})
    assert ready_verdict("i:1", catalog, read=True, ephemeral=False).message == "1 environment in image i:1."
    warned = ready_verdict("i:1", catalog, read=True, ephemeral=True)
    assert warned.readiness is Readiness.READY
    assert warned.message.startswith("1 environment in image i:1. Warning: the backend's checkpoints")
    assert "CheckpointLost" in warned.message


def test_an_image_that_nobody_has_pulled_is_not_claimed() -> None:
    """A catalog ships with the operator: it says nothing about the cluster's registry."""
    catalog = Catalog.model_validate({"environments": [{"name": "maze"}, {"name": "tower"}]})
    shipped = ready_verdict("i:1", catalog, read=False, ephemeral=False)
    assert shipped.readiness is Readiness.READY
    assert "by the operator's own catalog" in shipped.message
    assert shipped.message.endswith("image i:1 can be pulled.")


def test_names_and_first_lines_are_in_the_status_but_fields_are_not() -> None:
    environments = [
        {"name": "maze", "description": "d" * 500, "fields": [{"name": "a", "type": "int"}]},
        {"name": "maze", "description": "The same name again."},
    ]
    status = status_of(Catalog.model_validate({"environments": environments}))
    assert [(e.name, e.description) for e in status.environments] == [("maze", "The same name again.")]
    assert (status.observed_generation, status.image_id, status.fields_ref) == (2, "sha256:1", REFERENCE)
    assert len(status_of(Catalog.model_validate({"environments": environments[:1]})).environments[0].description) < 130


def test_many_warnings_are_counted() -> None:
    status = status_of(Catalog(warnings=tuple(f"file {n}" for n in range(30))))
    assert len(status.warnings) == MAX_WARNINGS
    assert status.warnings[-1].startswith("and 21 more")


def test_every_fault_is_named() -> None:
    faults = [Refusal(code="Inconsistent", field=f"spec.bounds.env.{name}", hint="no value fits") for name in "ab"]
    verdict = faults_verdict(faults)
    assert verdict.readiness is Readiness.STALLED
    assert verdict.message.splitlines() == ["spec.bounds.env.a: no value fits", "spec.bounds.env.b: no value fits"]
