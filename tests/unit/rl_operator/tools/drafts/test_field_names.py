"""From an agent's name for a field to its path in the spec."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, make_runtime

from rl_operator.check.name_lists import MOST_NAMES
from rl_operator.tools.agent_tool import ToolRefusedError
from rl_operator.tools.drafts.field_names import RunFields, run_fields

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
    known = {spelling for field in FIELDS.all for spelling in field.spellings}
    assume(name not in known)
    with pytest.raises(ToolRefusedError) as refused:
        FIELDS.named(name)
    assert len(str(refused.value)) < 600


def test_fields_of_the_run_know_their_limits() -> None:
    assert FIELDS.named("environment_replicas").allowed == "at least 1, at most 64"
    assert FIELDS.named("start_deadline_seconds").type == "int | None"
    assert FIELDS.named("wandb_project").default == "atropos-tinker"
