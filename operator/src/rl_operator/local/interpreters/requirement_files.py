"""A `requirements.txt` beside an environment's file: an interpreter by its content."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rl_operator.api.names import REQUIREMENTS_FILE
from rl_operator.local.interpreters.installed import Installed
from rl_operator.local.interpreters.interpreter import Recipe

PREFIX: Final = "requirements-"
_ELSEWHERE: Final = re.compile(r"(-r|-c|--requirement|--constraint)\b")
_RELATIVE: Final = re.compile(r"(?:(?:-e|--editable)[\s=]*)?(?:\.{1,2}(?:/|$|\[)|file:(?!//?/))")


def fault_of(text: str) -> str | None:
    """What cannot be installed by its text alone, as a sentence; None: nothing."""
    for number, line in _lines(text):
        if _ELSEWHERE.match(line):
            return f"{REQUIREMENTS_FILE}, line {number}: {line!r} names another file: write its lines here"
        if _RELATIVE.match(line):
            return f"{REQUIREMENTS_FILE}, line {number}: {line!r} is a relative path: write an absolute one"
    return None


def interpreter_name(text: str, installed: Installed) -> str:
    """Equal requirements beside the same tinker-atropos share one; comments and the order of lines do not count."""
    content = json.dumps([sorted(line for _, line in _lines(text)), installed.stamp])
    return f"{PREFIX}{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def requirements_recipe(text: str, installed: Installed, file: Path) -> Recipe:
    """`file` holds the text."""
    base = (*installed.arguments(""), "--requirement", str(file))
    listed: dict[str, tuple[str, ...]] = {line: () for _, line in _lines(text)}
    return Recipe(base, installed.told, installed.stamp, listed, interpreter_name(text, installed))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Those that say something, with their numbers."""
    for number, line in enumerate(text.splitlines(), start=1):
        if content := re.sub(r"(^|\s)#.*", "", line).strip():
            yield number, content
