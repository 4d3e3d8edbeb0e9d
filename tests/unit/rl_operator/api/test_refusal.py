from typing import Any

import pytest

from rl_operator.api.refusal import MAX_SHOWN, Refusal, shown


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
    ],
)
def test_secrets_are_not_shown(value: str, field: str) -> None:
    assert shown(value, field) == "(not shown)"


@pytest.mark.parametrize("value", [0, 1.5, None, True, "x", ["x"], {"a": 1}])
def test_ordinary_values_are_shown_as_given(value: Any) -> None:
    assert shown(value, "max_token_length") == value


def test_long_values_are_cut() -> None:
    assert len(shown("x" * 1000)) == MAX_SHOWN
    assert len(shown(["x" * 1000])) == MAX_SHOWN


def test_the_sentence_names_field_and_value() -> None:
    refusal = Refusal(code="WrongType", field="spec.config.group_size", given="8", hint="it must be a whole number")
    assert refusal.sentence == "spec.config.group_size is '8': it must be a whole number"
    assert Refusal(code="MissingField", field="spec", hint="the field is required").sentence == (
        "spec: the field is required"
    )
