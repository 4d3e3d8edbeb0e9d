"""Why a run is refused: one shape for people, agents and GitOps."""

import json
import re
from typing import Any, Literal

from pydantic import Field

from rl_operator.api.model import ObservedModel

RefusalCode = Literal[
    "InvalidDocument",
    "MissingField",
    "LockedField",
    "WiredField",
    "UnknownField",
    "WrongType",
    "OutOfBounds",
    "Inconsistent",
    "InvalidName",
    "UnknownEnvironment",
    "EnvironmentNotReady",
    "RuntimeNotFound",
    "NamespaceNotAllowed",
    "SecretNotAllowed",
    "StartFromRefused",
    "FrozenField",
    "NotSupported",
]


class Refusal(ObservedModel):
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
        if not self.field:
            return self.hint
        return (
            f"{self.field} is {self.given!r}: {self.hint}" if self.given is not None else f"{self.field}: {self.hint}"
        )


MAX_SHOWN = 120
_SECRET_NAME = re.compile(r"(?i)(api_?key|access_?key|secret|password|credential|(^|_)token$)")
_SECRET_VALUE = re.compile(r"^(tml-|sk-|hf_|gh[a-z]_|wandb_v)\S+$|^[0-9a-f]{40}$")


def looks_like_a_key(value: Any) -> bool:
    """Whether a value looks like a key of Tinker, W&B, OpenAI, OpenRouter, Hugging Face or GitHub."""
    return isinstance(value, str) and _SECRET_VALUE.search(value) is not None


def shown(value: Any, field: str = "") -> Any:
    """A given value as a refusal may repeat it: status and logs show no secrets and nothing long."""
    if value is not None and _SECRET_NAME.search(field):
        return "(not shown)"
    if looks_like_a_key(value):
        return "(not shown)"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
