"""Values as single lines of YAML, and texts as blocks. Pure."""

import json
import re

from rl_operator.documents.yaml_text import read_yaml

_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON keeps as they are, and that YAML needs to escape or reads as a line end."""


def flow(value: object) -> str:
    """A value in one line, plain where that parses back to the same: `null`, `0.001`, `bundled`, `[1, 2]`."""
    if isinstance(value, str) and _reads_back(f"key: {value}", {"key": value}):
        return value
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def block(name: str, text: str, indent: int) -> str:
    """A mapping's entry with a multi-line text, written with `|` where that parses back to the same."""
    margin = " " * indent
    keep = "+" if text.endswith("\n\n") else "" if text.endswith("\n") else "-"
    lines = "".join(f"{margin}  {line}\n" if line else "\n" for line in text.removesuffix("\n").split("\n"))
    for first_line in (f"|{keep}", f"|2{keep}"):  # the second one for a text that begins with a space
        written = f"{margin}{name}: {first_line}\n{lines}"
        if _reads_back(f"{written}{margin}end: 1\n", {name: text, "end": 1}):
            return written
    return f"{margin}{name}: {flow(text)}\n"


def _reads_back(written: str, value: object) -> bool:
    try:
        return read_yaml(written) == [value]
    except ValueError:
        return False
