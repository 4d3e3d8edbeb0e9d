import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api.refusal import (
    MAX_REFUSALS,
    MAX_SHOWN,
    REST_UNCHECKED,
    SECRET_INSIDE,
    Refusal,
    and_more,
    field_path,
    first_refusals,
    holds_a_secret,
    redacted,
    text_holds_a_key,
)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("anything", "api_key"),
        ("anything", "wandb_apiKey"),
        ("anything", "hf_token"),
        ("anything", "db_password"),
        ("tml-abc", "group_size"),
        ("sk-abc", ""),
        ("hf_abc", ""),
        ("0123456789abcdef0123456789abcdef01234567", "name"),
        (["x", "sk-abc"], "models"),
        ({"a": {"my_token": "x"}}, "server"),
        ({"headers": {"Password": 1}}, "server"),
    ],
)
def test_secrets_are_not_shown(value: Any, field: str) -> None:
    assert redacted(value, field) == "(not shown)"


@pytest.mark.parametrize("value", [0, 1.5, None, True, "x", ["x"], {"a": 1}, {"max_tokens": 1}, ["my secret"]])
def test_ordinary_values_are_shown_as_given(value: Any) -> None:
    assert redacted(value, "max_token_length") == value


def test_long_values_are_cut() -> None:
    assert len(redacted("x" * 1000)) == MAX_SHOWN
    assert len(redacted(["x" * 1000])) == MAX_SHOWN


def test_the_sentence_names_field_and_value() -> None:
    refusal = Refusal(code="WrongType", field="spec.config.group_size", given="8", hint="it must be an integer")
    assert refusal.sentence == 'spec.config.group_size is "8": it must be an integer'
    assert Refusal(code="MissingField", field="spec", hint="the field is required").sentence == (
        "spec: the field is required"
    )


def test_a_secret_is_left_out_of_the_sentence() -> None:
    refusal = Refusal(
        code="WiredField", field="spec.config.api_key", given=redacted("x", "api_key"), hint="leave it out"
    )
    assert refusal.sentence == "spec.config.api_key: leave it out"


def test_a_long_text_takes_linear_time() -> None:
    """Python's own search for the expression of the admission policies would take hours."""
    assert redacted(["password" * 100_000]) == '["' + "password" * 14 + "passw…"


@given(st.lists(st.sampled_from(['"', ":", "a", "_", " ", "token", "Password"]), max_size=12).map("".join))
def test_a_secret_is_found_where_the_policies_find_it(text: str) -> None:
    assert holds_a_secret(text) == (re.search(SECRET_INSIDE, text) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "sk-or-v1-0123456789abcdef0123",
        "key=hf_0123456789abcdefABCDEF, as said",
        "ghp_0123456789abcdefABCD",
        "tml-0123456789abcdefABCD",
        "see AKIA0123456789ABCDEF",
        "wandb_v1_0123456789abcdefABCD",
        "sk-ant-api03-01234_abc-0123_456789-abcdefghij0123456789-_AA",
        ["a", "sk-0123456789abcdef0123"],
    ],
)
def test_a_key_is_found_in_what_people_write(text: str | list[str]) -> None:
    assert text_holds_a_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "with sk-learn-experiments-2024",
        "hf_dataset_gsm8k_main",
        "hf_hub_download_timeout is longer",
        ["sk-learn_baseline_run_2", "wandb_v2_migration_of_runs", "ghp_is_a_prefix_not_a_key"],
        "commit 0123456789abcdef0123456789abcdef01234567",
        "task-0123456789abcdef0123",
        "https://example.com/hf_hub",
        ["baseline", "sk-1"],
    ],
)
def test_what_people_write_is_no_key(text: str | list[str]) -> None:
    assert not text_holds_a_key(text)


def endless() -> Iterator[Refusal]:
    while True:
        yield Refusal(code="MissingField", field="spec")


def test_no_more_is_looked_for_than_is_listed() -> None:
    refusals = first_refusals(endless())
    assert (len(refusals), refusals[-1]) == (MAX_REFUSALS + 1, REST_UNCHECKED)
    assert and_more(refusals) == f" (and at least {MAX_REFUSALS - 1} more)"
    assert and_more(refusals[:3]) == " (and 2 more)"
    assert and_more(refusals[:1]) == ""
    assert first_refusals(refusals[:MAX_REFUSALS]) == refusals[:MAX_REFUSALS]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("group_size", "spec.group_size"),
        ("x-y", "spec.x-y"),
        ("", 'spec[""]'),
        ("a.b", 'spec["a.b"]'),
        ("a\nb", 'spec["a\\nb"]'),
        ("a\u2028b", 'spec["a\\u2028b"]'),
        ("x" * 1000, f'spec["{"x" * 119}…"]'),
    ],
)
def test_a_path_is_one_short_line_whatever_its_keys_are(key: str, path: str) -> None:
    assert field_path(("spec", key)) == path
