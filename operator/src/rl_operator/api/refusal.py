"""Why a run is refused: one shape for people, agents and GitOps."""

from typing import Any, Literal

from pydantic import Field

from rl_operator.api.model import ApiModel

RefusalCode = Literal[
    "LockedField",
    "WiredField",
    "UnknownField",
    "WrongType",
    "OutOfBounds",
    "Inconsistent",
    "InvalidName",
    "UnknownEnvironment",
    "RuntimeNotFound",
    "NotSupported",
]


class Refusal(ApiModel):
    """One reason why a run does not start. `field` is a path like `spec.config.group_size`."""

    code: RefusalCode = Field(description="What kind of refusal this is.")
    field: str = Field(description="Path of the field that is refused.")
    given: Any = Field(default=None, description="The value that was given.")
    allowed: Any = Field(default=None, description="The values or the type that are allowed.")
    locked: Any = Field(default=None, description="The value to which the runtime locks the field.")
    hint: str = Field(default="", description="One sentence: what to do.")

    @property
    def sentence(self) -> str:
        """The refusal as one line: `spec.config.group_size is 3: …`."""
        return f"{self.field} is {self.given!r}: {self.hint}"
