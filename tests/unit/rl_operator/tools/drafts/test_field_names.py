"""From an agent's name for a field to its path in the spec."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, make_runtime, tasksets
from tests.unit.rl_operator.strategies import JSON, SECRET

from rl_operator.check.name_lists import MOST_NAMES
from rl_operator.tools.agent_tool import ToolRefusedError
from rl_operator.tools.drafts.field_names import (
    RunFields,
    changes_of,
    edits_of,
    run_fields,
    settings_of,
    spellings_of,
    with_edits,
)

TINY_FIELDS = run_fields(CATALOG.named("sort_digits"), TINY)
SPEC: dict[str, Any] = {"environment": "sort_digits", "config": {"group_size": 4}, "trainer": {}, "wandb": {"tags": []}}


def sent(value: Any, type_: str, **field: Any) -> tuple[Any, str]:
    """How a value for a field of that type is read."""
    toy = catalog_of({"name": "knob", "type": type_, **field}).named("toy")
    [edit], _ = edits_of(run_fields(toy, make_runtime()), {"knob": value})
    return edit.value, edit.note


@pytest.mark.parametrize(
    ("value", "type_", "taken"),
    [
        ("8", "int", 8),
        ("8.0", "int", 8),
        (" 8 ", "int", 8),
        ("4e-5", "float", 4e-5),
        ("true", "bool", True),
        ("False", "bool", False),
        ("[1, 2]", "list[int]", [1, 2]),
        ('{"a": 1}', "dict[str, int]", {"a": 1}),
        ("null", "int | None", None),
        ("7", "Optional[int]", 7),
    ],
)
def test_texts_for_other_types_are_parsed(value: str, type_: str, taken: Any) -> None:
    found, note = sent(value, type_)
    assert (found, type(found)) == (taken, type(taken))
    assert "was taken as" in note


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("8", "str"),
        ("8", "str | int"),
        ("8", "Any"),
        ("eight", "int"),
        ("8.5", "int"),
        ("1", "bool"),
        ("NaN", "float"),
        ("Infinity", "float"),
        ("[" * 100_000, "list[int]"),
        ("9" * 5000, "int"),
        ("", "int"),
        (8, "str"),
        (True, "int"),
    ],
)
def test_everything_else_is_unchanged(value: Any, type_: str) -> None:
    assert sent(value, type_) == (value, "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"a": [float("-inf")]}])
def test_invalid_json_is_refused_with_its_field(value: Any) -> None:
    edits, [fault] = edits_of(TINY_FIELDS, {"group_size": value, "total_steps": 3})
    assert [edit.field.name for edit in edits] == ["total_steps"]
    assert str(fault).startswith("config.group_size: ")


@pytest.mark.parametrize("values", [{"wandb_notes": SECRET}, {"wandb_tags": [SECRET]}, {"start_from": {"run": SECRET}}])
def test_a_key_is_refused_in_unchecked_values_too(values: dict[str, Any]) -> None:
    edits, [fault] = edits_of(TINY_FIELDS, values)
    assert not edits
    assert "this looks like a key" in str(fault)
    assert SECRET not in str(fault)


def test_one_field_by_two_names_is_refused() -> None:
    _, [fault] = edits_of(TINY_FIELDS, {"group_size": 1, "env.group_size": 2})
    assert "group_size and env.group_size are one field" in str(fault)


def test_a_mapping_replaces_the_old_one() -> None:
    before = {**SPEC, "startFrom": {"run": "parent", "withOptimizer": True}}
    edited = with_edits(before, edits_of(TINY_FIELDS, {"start_from": {"checkpoint": "tinker://a"}})[0])
    assert edited["startFrom"] == {"checkpoint": "tinker://a"}
    assert before["startFrom"] == {"run": "parent", "withOptimizer": True}


@given(JSON)
def test_a_value_is_put_in_its_section_and_null_removes_it(value: Any) -> None:
    edits, _ = edits_of(run_fields(catalog_of({"name": "knob", "type": "Any"}).named("toy"), TINY), {"knob": value})
    edited = with_edits(SPEC, edits)
    assert edited["config"].get("knob") == value
    assert ("knob" in edited["config"]) == (value is not None)
    assert {**edited, "config": {"group_size": 4}} == SPEC


def sentence(values: dict[str, Any], spec: dict[str, Any] = SPEC) -> str:
    edits, _ = edits_of(TINY_FIELDS, values)
    [change] = changes_of(TINY_FIELDS, edits, spec, with_edits(spec, edits))
    return change.sentence


def test_changes_are_reported() -> None:
    assert sentence({"group_size": 8}) == "group_size is 8 now (it was 4)"
    assert sentence({"group_size": "8"}) == 'group_size is 8 now (it was 4); the text "8" was taken as 8'
    assert sentence({"group_size": 4}) == "group_size stays 4"
    assert sentence({"group_size": None}) == "group_size is unset, so 8 holds (it was 4)"
    assert sentence({"wandb_project": "x"}) == 'wandb_project is "x" now (it was null)'
    assert len(sentence({"custom_thinking_prompt": "x" * 100_000})) < 300


def test_long_texts_that_end_differently_are_a_change() -> None:
    before = {**SPEC, "config": {"custom_thinking_prompt": "x" * 200}}
    assert " now (it was " in sentence({"custom_thinking_prompt": "x" * 200 + "y"}, before)
    assert "stays" in sentence({"custom_thinking_prompt": "x" * 200}, before)


def test_the_settings_of_a_run() -> None:
    spec = {**SPEC, "wandb": {"name": "n", "tags": []}, "backoffLimit": 0, "startDeadlineSeconds": 1800}
    assert settings_of(TINY_FIELDS, spec) == {"group_size": 4, "wandb_name": "n", "backoff_limit": 0}
    foreign = {**SPEC, "config": {"group_sise": 1, "api_key": SECRET}}
    assert settings_of(TINY_FIELDS, foreign) == {"config.group_sise": 1, "config.api_key": "(not shown)"}


def test_a_lock_applies_whatever_the_run_sets() -> None:
    fields = run_fields(CATALOG.named("sort_digits"), DEFAULT)
    edits, _ = edits_of(fields, {"total_steps": None})
    spec = {**SPEC, "config": {"total_steps": 5}}
    [change] = changes_of(fields, edits, spec, with_edits(spec, edits))
    assert change.sentence == "total_steps stays 2500"


TASKSET = run_fields(tasksets().chosen("verifiers/sorting"), make_runtime())


@pytest.mark.parametrize("place", ["", "config.", "spec.config.", "env."])
def test_a_field_inside_of_a_mapping_is_set_there(place: str) -> None:
    edits, faults = edits_of(TASKSET, {f"{place}taskset.size": "3"})
    assert not faults
    before = {"environment": "verifiers/sorting", "config": {"taskset": {"level": "hard"}}}
    after = with_edits(before, edits)
    assert after["config"] == {"taskset": {"level": "hard", "size": 3}}
    [change] = changes_of(TASKSET, edits, before, after)
    assert change.to_wire() == {"field": "taskset.size", "path": "config.taskset.size", "from": 100, "to": 3}
    assert settings_of(TASKSET, after) == {"taskset.level": "hard", "taskset.size": 3}


@pytest.mark.parametrize("refused", [7, None, [1]])
def test_what_should_have_been_a_mapping_is_replaced_by_one(refused: Any) -> None:
    edits, _ = edits_of(TASKSET, {"taskset.size": 3})
    spec = {"environment": "verifiers/sorting", "config": {"taskset": refused}}
    assert settings_of(TASKSET, spec) == {"config.taskset": refused}
    assert with_edits(spec, edits)["config"] == {"taskset": {"size": 3}}


def test_the_inner_name_alone_is_told_the_whole_one() -> None:
    _, [fault] = edits_of(TASKSET, {"size": 3})
    assert "there is no field \"size\"; did you mean 'taskset.size'?" in str(fault)


FIELDS = run_fields(CATALOG.named("sort_digits"), DEFAULT)


def toy(*names: str) -> RunFields:
    fields = [{"name": name, "type": "int", "default": 3} for name in names]
    return run_fields(catalog_of(*fields).named("toy"), make_runtime())


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("group_size", ("config", "group_size")),
        ("config.group_size", ("config", "group_size")),
        ("env.group_size", ("config", "group_size")),
        ("spec.config.group_size", ("config", "group_size")),
        ("learning_rate", ("trainer", "learning_rate")),
        ("trainer.learning_rate", ("trainer", "learning_rate")),
        ("spec.trainer.learning_rate", ("trainer", "learning_rate")),
        ("wandb_project", ("wandb", "project")),
        ("wandb.project", ("wandb", "project")),
        ("spec.wandb.project", ("wandb", "project")),
        ("wandb_name", ("wandb", "name")),
        ("wandb_run_name", ("wandb", "name")),
        ("config.wandb_name", ("config", "wandb_name")),
        ("wandb_tags", ("wandb", "tags")),
        ("backoff_limit", ("backoffLimit",)),
        ("spec.backoff_limit", ("backoffLimit",)),
        ("spec.backoffLimit", ("backoffLimit",)),
        ("ttl_seconds_after_finished", ("ttlSecondsAfterFinished",)),
        ("start_from", ("startFrom",)),
        ("sandbox", ("sandbox",)),
    ],
)
def test_a_field_and_its_names(name: str, place: tuple[str, ...]) -> None:
    assert FIELDS.named(name).place == place


@pytest.mark.parametrize("runtime", [TINY, DEFAULT], ids=["tiny", "default"])
def test_every_listed_name_and_path_is_found_again(runtime) -> None:
    fields = run_fields(CATALOG.named("sort_digits"), runtime)
    for field in fields.all:
        assert fields.named(fields.called(field)) is field
        assert fields.named(field.path) is field


@pytest.mark.parametrize(
    ("clash", "paths"),
    [("seed", ["config.seed", "trainer.seed"]), ("priority", ["config.priority", "spec.priority"])],
)
def test_a_name_of_two_fields_is_refused_with_both_paths(clash: str, paths: list[str]) -> None:
    fields = toy(clash)
    with pytest.raises(ToolRefusedError, match=f"{clash} may be {' or '.join(paths)}: name one of them") as refused:
        fields.named(clash)
    assert refused.value.details == {"available_fields": paths}
    assert [fields.called(fields.named(path)) for path in paths] == paths


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rollout_server_url", "addresses are chosen by the platform"),
        ("env.api_key", "keys come from the Secrets"),
        ("spec.trainer.checkpoint_dir", "folders are chosen by the platform"),
        ("trainer.wandb_project", "set spec.wandb.project instead"),
        ("environment", "rl_select_environment drafts"),
        ("spec.runtime", "rl_select_environment drafts"),
        ("suspend", "rl_start_training starts"),
    ],
)
def test_a_setting_from_elsewhere_says_where(name: str, why: str) -> None:
    with pytest.raises(ToolRefusedError, match=why):
        FIELDS.named(name)


@pytest.mark.parametrize(
    ("name", "today"),
    [
        ("tinker.learning_rate", "trainer.learning_rate"),
        ("spec.tinker.seed", "spec.trainer.seed"),
        ("kl_base_coef", "kl_penalty_coef"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(name: str, today: str) -> None:
    with pytest.raises(ToolRefusedError, match=f"there is no field \"{name}\"; it is called '{today}'"):
        FIELDS.named(name)


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    with pytest.raises(ToolRefusedError, match="did you mean 'group_size'") as refused:
        FIELDS.named("groupsize")
    available = refused.value.details["available_fields"]
    assert (available[0], len(available)) == ("group_size", MOST_NAMES)


@pytest.mark.parametrize(("name", "meant"), [("lr", "learning_rate"), ("BS", "batch_size"), ("gs", "group_size")])
def test_an_abbreviation_is_nearest_to_what_it_abbreviates(name: str, meant: str) -> None:
    with pytest.raises(ToolRefusedError, match=f"did you mean '{meant}'") as refused:
        FIELDS.named(name)
    assert refused.value.details["available_fields"][0] == meant


def test_a_key_instead_of_a_field_is_not_repeated() -> None:
    with pytest.raises(ToolRefusedError) as refused:
        FIELDS.named("tml-0123456789abcdef")
    assert "tml-" not in str(refused.value)


@given(st.text(max_size=300) | st.builds(".".join, st.lists(st.sampled_from([*"ab", "config", "spec", "trainer"]))))
def test_unlisted_names_are_not_found_and_answers_are_short(name: str) -> None:
    known = {spelling for field in FIELDS.all for spelling in spellings_of(field)}
    assume(name not in known)
    with pytest.raises(ToolRefusedError) as refused:
        FIELDS.named(name)
    assert len(str(refused.value)) < 600


def test_fields_of_the_run_know_their_limits() -> None:
    assert FIELDS.named("environment_replicas").allowed == "at least 1, at most 64"
    assert FIELDS.named("start_deadline_seconds").type == "int | None"
    assert FIELDS.named("wandb_project").default == "atropos-tinker"
