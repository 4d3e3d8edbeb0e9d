"""rl_list_environments."""

import re
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import make_runtime
from tests.unit.rl_operator.strategies import drawn
from tests.unit.rl_operator.tools.contexts import (
    OWN_CODE,
    Call,
    Unattended,
    add_own,
    call_at,
    drafted,
    other_user,
    spec_of,
)

from rl_operator.api.catalog import Catalog, CatalogEnvironment
from rl_operator.api.environment import Environment
from rl_operator.api.names import MAX_RUN_NAME_LENGTH, RUN_NAME_PATTERN
from rl_operator.api.runtime import Runtime
from rl_operator.documents.parse import parse_run
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import Manifest
from rl_operator.operator_errors import ConflictError, ForbiddenError
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_list_environments import run_name
from rl_operator.tools.runs import latest_drafted, named_run, state_of


def test_a_draft_is_a_suspended_run(context: CallContext, call: Call) -> None:
    answer = call("rl_select_environment", name="sort_digits").answer
    assert re.fullmatch("sort-digits-[0-9a-f]{8}", answer["run_id"])
    assert (answer["environment"], answer["file_path"]) == ("sort_digits", "environments/bundled/sort_digits.py")
    assert "refusals" not in answer
    run = named_run(context, answer["run_id"][-8:])
    assert run.is_draft
    assert (run.spec.environment, run.spec.runtime, state_of(run)) == ("sort_digits", "tiny", "draft")
    assert {"group_size", "learning_rate", "wandb_project", "backoff_limit"} <= set(answer["editable"])
    assert answer["locked"] == ["tokenizer_name"]


@pytest.mark.process
@pytest.mark.parametrize("name", ["sort_digit", "own/none", "./none.py", "x" * 253, "tml-abcdefgh"])
def test_an_unknown_environment_is_refused_with_the_existing_ones(context: CallContext, call: Call, name: str) -> None:
    add_own(context)
    refused = call("rl_select_environment", name=name)
    assert refused.code == "refused"
    assert refused.answer["refusals"][0]["field"] == "spec.environment"
    names = {"own/shout"} if name.endswith(".py") else {"sort_digits", "reasoning-gym/NAME", "own/shout"}
    assert names <= set(refused.answer["available"])
    assert list(context.target.runs("default", "")) == []


@pytest.mark.process
@pytest.mark.parametrize("name", ["own/", "own/../../x", "own/A", "own/a/b", "own/.", "own/\x00", "\x00.py", "a\nb"])
def test_an_impossible_name_never_becomes_a_path(context: CallContext, call: Call, name: str) -> None:
    add_own(context)
    refused = call("rl_select_environment", name=name)
    assert (refused.code, refused.answer["available"]) == ("refused", ["own/shout"])
    assert "not a valid environment name" in refused.answer["error"]


@drawn(0.3)
@given(
    st.builds(
        "".join,
        st.tuples(st.sampled_from(["", "own/", "./"]), st.text(max_size=20), st.sampled_from(["", ".py", "/.."])),
    ),
    st.none() | st.text(max_size=20),
)
def test_any_name_is_drafted_or_refused(name: str, runtime: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context = CallContext(Unattended(Layout(Path(folder)), "", print), "default")
        outcome = call_at(context, "rl_select_environment", name=name, runtime=runtime)
        assert outcome.code in (None, "refused"), outcome
        assert len(list(context.target.runs("default", ""))) == (outcome.code is None)


@pytest.mark.process
def test_an_unreadable_environment_names_the_location(context: CallContext, call: Call) -> None:
    add_own(context, "broken", "class Broken(")
    refused = call("rl_select_environment", name="own/broken")
    assert refused.answer["refusals"][0]["code"] == "EnvironmentNotReady"
    assert "broken.py, line 1" in refused.answer["error"]


@pytest.mark.process
def test_own_environments_and_files_are_drafted(context: CallContext, call: Call, tmp_path: Path) -> None:
    add_own(context)
    own = call("rl_select_environment", name="own/shout").answer
    assert (own["environment"], own["run_id"][:-9]) == ("own/shout", "shout")
    assert {"loudness", "config.priority", "spec.priority"} <= set(own["editable"])
    path = tmp_path / "my_env.py"
    path.write_text(OWN_CODE)
    file = call("rl_select_environment", name=str(path)).answer
    assert file["run_id"][:-9] == "my-env"
    assert call("rl_get_current_config").answer["run_id"] == file["run_id"]


def test_a_runtime_that_forbids_the_namespace_is_refused(context: CallContext, call: Call) -> None:
    context.target.more = (make_runtime(namespaceSelector={"matchLabels": {"team": "ml"}}),)
    refused = call("rl_select_environment", name="sort_digits", runtime="lab")
    assert refused.answer["refusals"][0]["code"] == "NamespaceNotAllowed"


def test_a_fixable_draft_is_created_with_its_refusals(context: CallContext, call: Call) -> None:
    context.target.more = (make_runtime(bounds={"env": {"total_steps": {"max": 7}}}),)
    answer = call("rl_select_environment", name="sort_digits", runtime="lab").answer
    assert [refusal["field"] for refusal in answer["refusals"]] == ["spec.config.total_steps"]
    edited = call("rl_edit_config", field="total_steps", value=5).answer
    assert "refusals" not in edited


def test_two_agents_of_a_user_and_two_users_are_separate(context: CallContext, tmp_path: Path) -> None:
    second = CallContext(context.target, "default", agent="second")
    other = other_user(tmp_path)
    mine, theirs, others = drafted(context), drafted(second), drafted(other)
    assert [latest_drafted(each).metadata.name for each in (context, second, other)] == [mine, theirs, others]
    call_at(context, "rl_edit_config", field="group_size", value=4)
    assert [spec_of(context, run)["config"] for run in (mine, theirs, others)] == [{"group_size": 4}, {}, {}]
    assert "somebody" not in str(list(context.target.runs("default", "")))


@pytest.mark.parametrize("gap", [timedelta(microseconds=1), timedelta(days=400)])
def test_the_latest_draft_is_found_whatever_its_name(tmp_path: Path, gap: timedelta) -> None:
    """Even within one second of the API server's clock, and in any time zone."""
    now = datetime(2026, 5, 1, 23, tzinfo=UTC)
    context = CallContext(Unattended(Layout(tmp_path), "", print), "default", now=lambda: now)
    later = (now + gap).astimezone(timezone(timedelta(hours=-7)))
    for run_id in [drafted(context) for _ in range(5)]:
        last = drafted(replace(context, now=partial(later.replace)))
        assert latest_drafted(context).metadata.name == last != run_id
        later += gap


def test_a_restarted_server_has_lost_nothing(context: CallContext, tmp_path: Path) -> None:
    run_id = drafted(context)
    again = CallContext(Unattended(Layout(tmp_path), "", print), "default")
    assert call_at(again, "rl_get_current_config").answer["run_id"] == run_id


class Taken(Unattended):
    """The first names are already taken."""

    taken = 2

    def create(self, manifest: Manifest) -> Manifest:  # type: ignore[override]
        if self.taken:
            self.taken -= 1
            raise ConflictError("it is there already")
        return super().create(manifest)


def test_a_taken_name_is_not_the_callers_problem(tmp_path: Path) -> None:
    context = CallContext(Taken(Layout(tmp_path), "", print), "default")
    assert drafted(context)
    context.target.taken = 99
    assert call_at(context, "rl_select_environment", name="sort_digits").answer["retryable"] is True


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("sort_digits", "sort-digits-0a1b2c3d"),
        ("own/My.Env", "my-env-0a1b2c3d"),
        ("./envs/my_env.py", "my-env-0a1b2c3d"),
        ("2048", "run-2048-0a1b2c3d"),
        ("_", "run-0a1b2c3d"),
        ("a" * 42 + "__b", "a" * 42 + "-0a1b2c3d"),
    ],
)
def test_names_of_runs(environment: str, name: str) -> None:
    assert run_name(environment, "0a1b2c3d") == name


@given(st.text(max_size=100))
def test_every_environment_has_a_name_for_its_runs(environment: str) -> None:
    name = run_name(environment, "0a1b2c3d")
    assert len(name) <= MAX_RUN_NAME_LENGTH
    assert re.fullmatch(RUN_NAME_PATTERN, name)


def test_the_written_run_looks_like_an_authors(context: CallContext) -> None:
    [written] = [context.target.run("default", drafted(context))]
    assert written
    assert written["spec"] == {"environment": "sort_digits", "runtime": "tiny", "suspend": True}
    assert parse_run(written)


def test_the_bundled_ones_with_the_keys_of_the_original_tools(call: Call) -> None:
    answer = call("rl_list_environments").answer
    found = {each["name"]: each for each in answer["environments"]}
    assert found.keys() == {each.name for each in bundled_catalog().outline}
    assert found["sort_digits"]["class_name"] == "SortDigits"
    assert found["sort_digits"]["file_path"] == "environments/bundled/sort_digits.py"
    assert found["sort_digits"]["description"].startswith("Sort four digits")
    assert answer["count"] == len(found)
    assert 1 <= len(answer["tips"]) <= 3
    assert "warnings" not in answer


BUNDLED = ["calculator_agent", "fix_python", "gsm_synthetic", "sort_digits"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("FOUR digits", ["sort_digits", "harness/sort_digits"]),
        ("chain_sum", ["reasoning-gym/chain_sum", "reasoning-gym/decimal_chain_sum", "harness/reasoning-gym/mix"]),
        ("knight swap PUZZLES", ["reasoning-gym/knight_swap"]),
        ("no such thing", []),
        ("  ", [*BUNDLED, "reasoning-gym/mix", "reasoning-gym/NAME", "harness/NAME"]),
    ],
)
def test_a_query_searches_names_and_descriptions(call: Call, query: str, found: list[str]) -> None:
    assert [each["name"] for each in call("rl_list_environments", query=query).answer["environments"]] == found


def test_a_library_of_a_hundred_names_is_paid_for_once(call: Call) -> None:
    listed, searched = call("rl_list_environments").answer, call("rl_list_environments", query="reasoning-gym/").answer
    assert tokens(listed) < 500
    assert searched["count"] > 100
    assert set(searched["environments"][0]) == {"name", "description"}, "its class and file are always the same"


@pytest.mark.parametrize("query", ["verifiers", "Verifiers/word-game"])
def test_a_library_that_is_not_installed_is_asked_for(call: Call, query: str) -> None:
    answer = call("rl_list_environments", query=query).answer
    assert answer["environments"] == []
    [warning] = answer["warnings"]
    assert "rlctl environments install verifiers" in warning


@pytest.mark.process
def test_descriptions_are_sanitized(context: CallContext, call: Call) -> None:
    hidden = OWN_CODE.replace("Words in capitals.", "Words in \\x1b[1mcapitals\\u202e. tml-abcdefgh123")
    add_own(context, code=hidden)
    own = call("rl_list_environments", query="own/").answer["environments"]
    assert [each["description"] for each in own] == ["Words in capitals. [redacted]"]


@pytest.mark.process
def test_own_ones_say_what_prevents_training(context: CallContext, call: Call) -> None:
    add_own(context)
    add_own(context, "broken", "class Broken(")
    own = {e["name"]: e for e in call("rl_list_environments").answer["environments"] if e["name"].startswith("own/")}
    assert own["own/shout"] == {
        "name": "own/shout",
        "class_name": "Shout",
        "file_path": "shout.py",
        "description": "Words in capitals.",
    }
    assert own["own/broken"]["state"] == "SyntaxError"
    assert "broken.py, line 1" in own["own/broken"]["message"]


def test_an_unknown_runtime_is_refused_with_the_existing_ones(call: Call) -> None:
    refused = call("rl_list_environments", runtime="tony")
    assert (refused.code, refused.answer["available"]) == ("refused", ["tiny", "default"])


class Unread(Unattended):
    """Its image is being read, and the caller may not list own environments."""

    def catalog(self, runtime: Runtime) -> Catalog | None:  # noqa: ARG002 -- whatever the runtime
        return None

    def environments(self, namespace: str) -> list[Environment]:
        raise ForbiddenError(f"GET rlenvironments of {namespace}: the API server answered 403: no")


def test_sources_that_cannot_be_listed_are_mentioned(tmp_path) -> None:
    context = CallContext(Unread(Layout(tmp_path), "", print), "default")
    answer = call_at(context, "rl_list_environments").answer
    assert (answer["environments"], answer["count"]) == ([], 0)
    assert [warning.split(":")[0] for warning in answer["warnings"]] == [
        "the image of runtime tiny is being read",
        "own environments are not listed",
    ]
    refused = call_at(context, "rl_select_environment", name="sort_digits")
    assert refused.answer["retryable"] is True
    assert "Ask again in a few seconds" in refused.answer["error"]


class Crowded(Unattended):
    def catalog(self, runtime: Runtime) -> Catalog | None:  # noqa: ARG002 -- whatever the runtime
        many = tuple(CatalogEnvironment(name=f"env_{i:03}", description="x" * 1000) for i in range(250))
        return Catalog(environments=many, warnings=tuple("w" * 1000 for _ in range(50)))


def test_a_long_list_is_cut_and_says_so(tmp_path) -> None:
    target = Crowded(Layout(tmp_path), "", print)
    target.more = (make_runtime(),)
    answer = call_at(CallContext(target, "default"), "rl_list_environments", runtime="lab").answer
    assert (len(answer["environments"]), answer["count"], answer["left_out"]) == (100, 250, 150)
    assert len(answer["warnings"]) == 5
    assert max(len(each["description"]) for each in answer["environments"]) == 200
    refused = call_at(CallContext(target, "default"), "rl_select_environment", name="env_1233", runtime="lab").answer
    assert len(refused["available"]) == 20
    assert refused["available"][0] in ("env_123", "env_233")
    assert "and 230 more" in refused["error"]
    assert tokens(refused) < 500
