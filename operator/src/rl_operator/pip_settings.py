"""What pip is configured with, as uv's variables: a company's index, certificate or constraints hold for both.

It imports nothing but Python's own modules: `tinker-atropos/installer.py` uses it before anything is installed.
"""

import ast
import re
from collections.abc import Mapping
from typing import Final

COUNTERPARTS: Final = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""For a setting of pip: uv's variable, and what separates several values in it."""

WITHOUT_EFFECT: Final = {
    *("default-timeout", "timeout", "retries", "disable-pip-version-check", "no-warn-script-location", "no-compile"),
    *("quiet", "verbose", "no-color", "progress-bar", "no-input", "require-virtualenv", "root-user-action"),
}
"""Settings that do not change what is installed."""


def uv_variables(settings: Mapping[str, str]) -> dict[str, str] | None:
    """What uv is told of pip's settings; None if one of them has no counterpart."""
    found = {}
    for name, value in settings.items():
        if name in COUNTERPARTS:
            variable, separator = COUNTERPARTS[name]
            found[variable] = separator.join(value.split())
        elif name not in WITHOUT_EFFECT:
            return None
    if "UV_INDEX" in found:
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # to pip all indexes are equal
    return found


def read_settings(listed: str) -> dict[str, str]:
    """An install's settings, from `pip config list`: variables hold over files, `install` over `global`."""
    settings = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.*)$", listed, re.MULTILINE):
            settings[name] = str(ast.literal_eval(value))
    return settings
