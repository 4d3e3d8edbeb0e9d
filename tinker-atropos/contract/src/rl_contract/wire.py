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
