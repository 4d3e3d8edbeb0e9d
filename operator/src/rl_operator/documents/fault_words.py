"""What is allowed where pydantic objects, in the words of the checks of settings. Pure."""

from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

from rl_operator.api import hints
from rl_operator.api.refusal import RefusalCode
from rl_operator.api.spec_parts.openenv import URL_PATTERN
from rl_operator.api.spec_parts.rollout_sinks import (
    BUCKET_PATTERN,
    KEY_PATTERN,
    REFERRED_PATTERN,
    REGION_PATTERN,
    SERVER_PATTERN,
)

_TYPES: Final[Mapping[str, str]] = {
    "int": "an integer",
    "float": "a number",
    "decimal": "a number",
    "string": "a string",
    "bool": "true or false",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
}
"""By the first word of pydantic's name of the fault: `int_type`, `int_parsing`, `int_from_float` …"""

_LIMITS: Final[Mapping[str, str]] = {
    "greater_than_equal": hints.AT_LEAST,
    "greater_than": hints.ABOVE,
    "less_than_equal": hints.AT_MOST,
    "less_than": "below %s",
    "string_too_short": "at least %s characters long",
    "string_too_long": "at most %s characters long",
    "too_short": "at least %s entries long",
    "too_long": "at most %s entries long",
}

_PATTERNS: Final[Mapping[str, str]] = {
    "^tinker://": "a path that begins with tinker://",
    "^[A-Z]{3}$": "the code of a currency, three capital letters like USD",
    "^https?://": "a URL that begins with http:// or https://",
    URL_PATTERN: "a URL like http://host:8000, without a path, a user or a trailing slash",
    "^[^,]{1,64}$": "a string of 1 to 64 characters without a comma",
    r"^\S+$": "the name of an image, without spaces",
    KEY_PATTERN: "a key of a ConfigMap or a Secret: letters, digits, '-', '_' and '.'",
    BUCKET_PATTERN: "a bucket, and a folder in it if you like: s3://bucket/folder",
    SERVER_PATTERN: "the URL of a server like https://store.example.com:9000, without a path or a user",
    REGION_PATTERN: "a region like us-east-1",
    REFERRED_PATTERN: "a name of a-z, 0-9, '-' and '.', which begins with a letter or digit",
}
"""The patterns of the kinds, in words."""


def allowed_instead(detail: ErrorDetails) -> tuple[RefusalCode, str | None]:
    """`OutOfBounds` and `at least 1`, or `WrongType` and `an integer`: what follows "it must be".

    None for a rarer fault: its own message has to do.
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if template := _LIMITS.get(kind):
        limit = next(context[name] for name in ("ge", "gt", "le", "lt", "min_length", "max_length") if name in context)
        words = template % (f"{limit:g}" if isinstance(limit, float) else limit)
        return "OutOfBounds", words.replace(" 1 characters", " 1 character").replace(" 1 entries", " 1 entry")
    match kind:
        case "literal_error" | "enum":
            return "WrongType", f"one of {str(context['expected']).replace(' or ', ', ').replace(chr(39), '')}"
        case "string_pattern_mismatch":
            pattern = str(context["pattern"])
            return "WrongType", _PATTERNS.get(pattern, f"a string that matches {pattern}")
    return "WrongType", _TYPES.get(kind.partition("_")[0])
