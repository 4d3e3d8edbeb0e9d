"""Messages from elsewhere, as one short line that may be shown: bounded, and without secrets."""

import itertools
import re
from typing import Final

MAX_MESSAGE: Final = 300
"""Characters of a message from a container or the kubelet."""

MAX_SENTENCE: Final = 512
"""Bytes of a status' message: it stays small."""

_SECRETS: Final = re.compile(
    r"\b(?:tml-|sk-|hf_|gh[a-z]_|wandb_v\d)[A-Za-z0-9_\-]{6,}|\b[0-9a-f]{40}\b"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|(?i:(?<=bearer )[^\s\"',;]{8,})"
    r"|(?<=://)[^\s/?#\"']+(?=@)"
)
"""Keys recognized by their form: those of `api.refusal.KEY_VALUE`, within a text; and who calls a URL."""

_ASSIGNED: Final = re.compile(
    r"(?i)((?:api_?key|access_?key|secret|password|credential|(?:auth|access)_token)\w{0,40}[\"']?"
    r"(?:\s?=\s?[\"']?|\s?:\s?[\"']))[^\s\"',;]+"
)
"""And by the name before them: `NAME=value`, `"name": "value"`."""


ERROR: Final = "error:"
"""How our programs begin the sentence that says why they ended."""


def clean(message: str) -> str:
    """A message as one line, secrets removed, cut to MAX_MESSAGE characters."""
    return cut(redacted(" ".join(message.split())), MAX_MESSAGE)


_FRAME: Final = re.compile(r'Traceback \(most recent call last\):|  File ".+", line \d+(?:, in |$)')
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
"""The first line after the frames: they are indented."""
_IN_GROUP: Final = re.compile(r"^ +[|+] ")
"""Before each line of a group of exceptions, as a TaskGroup raises it."""
_OVER: Final = re.compile(r' +\+-|\d{4}-\d\d-\d\d \d\d:\d\d|\{"time":')
"""What is no longer part of an exception: the line below one of a group, and our lines of a log."""


def meant(message: str) -> str:
    """What a program said on purpose: if its termination message is the end of its log, the line that says why it
    ended, or else the exception that nobody caught. Empty if there is neither: any other line may be about anything.
    """
    lines = (line.strip() for line in reversed(message.splitlines()))
    said = next((line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)), "")
    return clean(said or _uncaught(message))


def _uncaught(message: str) -> str:
    """What follows the last frame of a traceback, without pydantic's advertisement. The traceback may be cut off above;
    of a group it is the last exception.
    """
    lines = [_IN_GROUP.sub("", line) for line in message.splitlines()]
    last = max((number for number, line in enumerate(lines) if _FRAME.match(line)), default=len(lines))
    after = itertools.takewhile(lambda line: not _OVER.match(line), lines[last + 1 :])
    raised = itertools.dropwhile(lambda line: not _RAISED.match(line), after)
    return " ".join(line for line in raised if not line.strip().startswith("For further information visit"))


_STEERING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\?)?|[ -/]*[0-~])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Including what hides characters, or displays them in another order."""


def without_control(text: str) -> str:
    """The text without anything that steers a terminal, except line ends, carriage returns and tabs."""
    return _CONTROL.sub("", _STEERING.sub("", text))


def redacted(text: str) -> str:
    """The text without anything that looks like a key."""
    return _ASSIGNED.sub(r"\1[redacted]", _SECRETS.sub("[redacted]", text))


def cut(text: str, length: int) -> str:
    """The text in at most `length` characters; a truncated one ends with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def shorten(text: str, limit: int = MAX_SENTENCE) -> str:
    """The text in at most `limit` bytes of UTF-8; a truncated one ends with an ellipsis."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore").rstrip() + "…"


def is_beginning(said: str, text: str) -> bool:
    """Whether `said` is the text, or what is left of it after a cut; nothing is a beginning, too."""
    return said in ("", text) or (said.endswith("…") and text.startswith(said[:-1]))


def sentence(said: str) -> str:
    """What a program said, with a capital letter and one end: `is it there?.` ends with its question mark."""
    said = said.strip().rstrip(".")
    return joined(said[:1].upper() + said[1:])


def joined(*sentences: str) -> str:
    """Sentences in a row, each with its full stop; empty ones left out."""
    return " ".join(s if s.endswith((".", "…", "!", "?")) else f"{s}." for s in (s.strip() for s in sentences) if s)
