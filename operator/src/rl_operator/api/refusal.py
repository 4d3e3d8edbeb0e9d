"""Why a run is refused: one shape for people, agents and GitOps."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Literal

from pydantic import Field

from rl_operator.api.model import ObservedModel
from rl_operator.api.value_text import formatted, text_of

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
    "RuntimeInvalid",
    "NamespaceNotAllowed",
    "SecretNotAllowed",
    "StartFromRefused",
    "FrozenField",
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
        """The refusal as one line: `spec.config.group_size is 3: …`; admission policies say the same."""
        if not self.field:
            return self.hint
        given = "" if self.given in (None, NOT_SHOWN) else f" is {text_of(self.given)}"
        return f"{self.field}{given}: {self.hint}"


MAX_REFUSALS: Final = 20
"""The check of a document stops after so many."""

REST_UNCHECKED: Final = Refusal(
    code="InvalidDocument",
    field="",
    hint=f"the check stopped after {MAX_REFUSALS} refusals: correct these, and the rest is checked",
)


def first_refusals(found: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """At most MAX_REFUSALS of them, then a sentence that says so. More are not looked for: each may take time."""
    first = tuple(islice(found, MAX_REFUSALS + 1))
    return first if len(first) <= MAX_REFUSALS else (*first[:-1], REST_UNCHECKED)


def and_more(refusals: Sequence[Refusal]) -> str:
    """What follows the first refusal where there is room for one only: ` (and 2 more)`."""
    if refusals[-1] == REST_UNCHECKED:
        return f" (and at least {len(refusals) - 2} more)"
    return f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""


MAX_SHOWN: Final = 120
NOT_SHOWN: Final = "(not shown)"

# Regular expressions that mean the same in Python and CEL's RE2.
_HIDDEN_WORDS: Final = "api_?key|access_?key|secret|password|credential"
SECRET_NAME: Final = f"(?i:{_HIDDEN_WORDS}|(?:^|[._])token$)"
SECRET_INSIDE: Final = f'(?i:"[^"]*(?:{_HIDDEN_WORDS})[^"]*":|["_]token":)'
"""A field of such a name within the text of a list or a map."""

_CLOUD_KEY: Final = "(?:AKIA|ASIA)[A-Z0-9]{16}"
KEY_VALUE: Final = f"(?:tml-|sk-|hf_|gh[a-z]_|wandb_v)[!-~]+|[0-9a-f]{{40}}|{_CLOUD_KEY}"
KEY_INSIDE: Final = f'"(?:{KEY_VALUE})"'
KEY_IN_TEXT: Final = (
    f"(?:^|[^A-Za-z0-9_-])(?:(?:tml-|sk-|hf_|gh[a-z]_|wandb_v)[A-Za-z0-9_-]{{0,40}}[A-Za-z0-9]{{16}}|{_CLOUD_KEY})"
)
"""In what people write for people a key is a word with a long part of letters and digits only; 40 hexadecimal digits
may be a commit.
"""

PLAIN_NAME: Final = "^[A-Za-z_$][A-Za-z0-9_$-]*$"
MAX_PLAIN_NAME: Final = 100


_NAMES_INSIDE: Final = re.compile('"([^"]*)(?=":)')
_HIDDEN_NAME: Final = re.compile(f"(?i:{_HIDDEN_WORDS})")
_TOKEN_INSIDE: Final = re.compile('(?i:["_]token":)')


def holds_a_secret(text: str) -> bool:
    """Whether SECRET_INSIDE is found: in linear time, which Python's own search for it would not take."""
    named = any(_HIDDEN_NAME.search(name) for name in _NAMES_INSIDE.findall(text))
    return named or _TOKEN_INSIDE.search(text) is not None


def looks_like_a_key(value: object) -> bool:
    """Whether a value is or holds something like a key of Tinker, W&B, OpenAI, OpenRouter, Hugging Face or GitHub."""
    if isinstance(value, str):
        return re.fullmatch(KEY_VALUE, value) is not None
    return isinstance(value, dict | list | tuple) and re.search(KEY_INSIDE, formatted(value)) is not None


def text_holds_a_key(value: str | Sequence[str]) -> bool:
    """Whether a key was pasted into a text that people write for people, or into one of several."""
    return re.search(KEY_IN_TEXT, value if isinstance(value, str) else formatted(list(value))) is not None


def redacted(value: object, field: str = "") -> object:
    """A given value as a refusal may repeat it: status and logs contain no secrets and nothing long."""
    if value is not None and (re.search(SECRET_NAME, field) or looks_like_a_key(value)):
        return NOT_SHOWN
    if isinstance(value, str):
        return _cut(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if holds_a_secret(formatted(value)):
        return NOT_SHOWN
    text = text_of(value)
    return value if len(text) <= MAX_SHOWN else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def field_path(location: Iterable[str | int]) -> str:
    """`spec.wandb.tags[0]` from ("spec", "wandb", "tags", 0); a key that is not a plain name is quoted, and cut."""
    return "".join(map(_step, location)).lstrip(".")


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    plain = len(part) <= MAX_PLAIN_NAME and re.fullmatch(PLAIN_NAME, part) and not looks_like_a_key(part)
    return f".{part}" if plain else f"[{text_of(redacted(part))}]"
