"""What obstore says when an object store fails, as one sentence for people. Pure."""

import re
from collections.abc import Iterable
from typing import Final

NO_SUCH_FILE: Final = "NoSuchKey"
"""S3's code for a file that is not there; a bucket that is not there is another one."""

_CODE: Final = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
_STATUS: Final = re.compile(r"status code: (\d{3}[^:\n]*)")
_CAUSE: Final = re.compile(r'\b(?:message|error): "([^"\n]+)"')
"""In the Rust errors below the first line, such as `message: "Connection refused"`."""

_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)")
_TIMEOUT: Final = re.compile(r"kind: Timeout|TimedOut|timed out", re.IGNORECASE)
_METADATA: Final = re.compile(r"169\.254\.169\.254|169\.254\.170\.\d+|fd00:ec2::")
"""Addresses that clouds give out a pod's or machine's keys at."""

_LONGEST: Final = 300
_SHORTEST_KEY: Final = 8
"""A key that is shorter would be found in ordinary words."""


class StoreError(OSError):
    """The store did not do it. The message is one sentence without a key."""


def code_of(text: str) -> str | None:
    """S3's code, if the server answered with one."""
    found = _CODE.search(text)
    return found[1] if found else None


def sentence_of(text: str, keys: Iterable[str]) -> str:
    """Why it failed. No value of `keys` is in it, whatever the server sent back."""
    sentence = " ".join(_why(text).split())[:_LONGEST]
    for key in keys:
        if len(key) >= _SHORTEST_KEY:
            sentence = sentence.replace(key, "***")
    return sentence


def _why(text: str) -> str:
    first = text.split("\n", 1)[0]
    if _METADATA.search(first):
        return "there are no keys: name a Secret with them, or give the pod an identity that the store knows"
    if code := code_of(text):
        message = _MESSAGE.search(text)
        return f"{code}: {message[1]}" if message else code
    if status := _STATUS.search(first):
        return f"the server answered {status[1].strip()}"
    if certificate := _CERTIFICATE.search(text):
        return f"the server's certificate is not trusted ({certificate[1]})"
    if _TIMEOUT.search(text):
        return "the server does not answer in time"
    if cause := _CAUSE.search(text):
        return cause[1]
    return first.rpartition(" - ")[2]
