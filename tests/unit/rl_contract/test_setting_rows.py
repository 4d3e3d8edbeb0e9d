"""What is read from a model's fields."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from rl_contract.setting_rows import OnlyWith, Setting, Smallest, settings_of


class Model(BaseModel):
    needed: int = Field(gt=0, le=9, description="a number")
    rate: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = "auto"
    beta: Annotated[float, OnlyWith(losses=("dro",))] = Field(default=0.5, ge=0)
    name: str | None = Field(default=None, min_length=1, max_length=8)


def test_a_row_says_all_that_the_field_says() -> None:
    assert list(settings_of(Model).values()) == [
        Setting("needed", "int", None, True, "a number", Smallest(0, exclusive=True), 9),
        Setting("rate", "float | Literal['auto']", "auto", False, "", Smallest(0, exclusive=True), 1),
        Setting("beta", "float", 0.5, False, "", Smallest(0), losses=("dro",)),
        Setting("name", "str | None", None, False, "", min_length=1, max_length=8),
    ]


def test_a_limit_without_a_column_is_an_error_and_not_lost() -> None:
    class Odd(BaseModel):
        even: int = Field(default=2, multiple_of=2)

    with pytest.raises(TypeError, match="no table has a column for MultipleOf"):
        settings_of(Odd)
