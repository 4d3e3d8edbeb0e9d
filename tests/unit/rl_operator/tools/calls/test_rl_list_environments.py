"""rl_list_environments."""

from collections.abc import Callable

import pytest
from tests.unit.rl_operator.samples import make_runtime
from tests.unit.rl_operator.tools.contexts import OWN_CODE, Unattended, add_own, call_at

from rl_operator.api.catalog import Catalog, CatalogEnvironment
from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.local.state.layout import Layout
from rl_operator.operator_errors import ForbiddenError
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.toolset import Outcome

Call = Callable[..., Outcome]


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
