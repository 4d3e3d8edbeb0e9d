"""The base of all messages: frozen, camelCase on the wire; unknown fields are ignored, because a newer writer must not
break an older reader.
"""

from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON form: camelCase, fields that are None left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def with_changes(self, **changes: object) -> Self:
        """A copy with some fields replaced."""
        return self.model_copy(update=changes)


def timestamp(moment: datetime | None) -> str | None:
    """A moment as messages have it: UTC, in whole seconds."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


DURATION_STEPS = {
    10: "10 s", 30: "30 s", 60: "1 min", 120: "2 min", 300: "5 min", 600: "10 min", 1800: "30 min",
    3600: "1 h", 7200: "2 h", 21_600: "6 h", 43_200: "12 h", 86_400: "1 day", 604_800: "1 week",
}  # fmt: skip
"""Coarse: clients that watch `/status` write down every change; a wait of an hour is worth a few updates, not 3,600."""


def more_than(seconds: float) -> str:
    """`more than 2 min`: the longest of DURATION_STEPS that has passed; before the first one, `a few seconds`."""
    passed = [words for step, words in DURATION_STEPS.items() if step <= seconds]
    return f"more than {passed[-1]}" if passed else "a few seconds"
