from typing import Any

import pytest

from rl_operator.api.refusal import MAX_SHOWN, Refusal, redacted


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
    refusal = Refusal(code="WrongType", field="spec.config.group_size", given="8", hint="it must be a whole number")
    assert refusal.sentence == 'spec.config.group_size is "8": it must be a whole number'
    assert Refusal(code="MissingField", field="spec", hint="the field is required").sentence == (
        "spec: the field is required"
    )


def test_a_secret_is_left_out_of_the_sentence() -> None:
    refusal = Refusal(
        code="WiredField", field="spec.config.api_key", given=redacted("x", "api_key"), hint="leave it out"
    )
    assert refusal.sentence == "spec.config.api_key: leave it out"
