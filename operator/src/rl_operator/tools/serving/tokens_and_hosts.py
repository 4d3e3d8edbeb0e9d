"""Which callers and which host names the HTTP server accepts."""

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rl_operator.operator_errors import RefusedError
from rl_operator.targets.target import Note

MIN_TOKEN: Final = 16
_SPELLING: Final = "[A-Za-z0-9._~+/-]+=*"
_BEARER: Final = re.compile(f"bearer +({_SPELLING}) *", re.IGNORECASE)

_PRIVATE_SUFFIXES: Final = (".svc", ".svc.cluster.local", ".localhost")
"""Names that no public name server resolves."""


def bearer_token(authorization: str) -> str | None:
    """From an `Authorization` header, as RFC 6750 defines it."""
    found = _BEARER.fullmatch(authorization)
    return found[1] if found else None


def is_called_rightly(host: str, allowed: Collection[str]) -> bool:
    """Whether a `Host` header cannot be the result of DNS rebinding: a page on an attacker's public domain, whose name
    then resolves to our address, could call us. Addresses, names without a dot and names inside a cluster are never
    public domains; others are `allowed` by name.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return bool(name) and (name in allowed or "." not in name or name.endswith(_PRIVATE_SUFFIXES) or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def read_tokens(path: Path, note: Note) -> tuple[str, ...]:
    """One per line; empty lines and those that begin with # are ignored. Raises RefusedError."""
    try:
        text, mode = path.read_text(encoding="utf-8"), path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RefusedError(f"the file of tokens {path} cannot be read: {reason}") from error
    lines = [line.strip() for line in text.splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise RefusedError(f"the file of tokens {path} is empty: write one token per line")
    for number, line in enumerate(lines, start=1):
        if line in tokens and not (len(line) >= MIN_TOKEN and re.fullmatch(_SPELLING, line)):
            raise RefusedError(
                f"line {number} of {path} is not a token: a token has at least {MIN_TOKEN} characters, of letters, "
                "digits and ._~+/-; `openssl rand -hex 32` makes one"
            )
    if mode & 0o077:
        note(f"others on this machine may read the tokens in {path}: chmod 600 {path}")
    return tokens


def make_token(path: Path) -> None:
    """A file with a new token, readable only by its owner; an existing one is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")


def is_among(token: str, tokens: Iterable[str]) -> bool:
    """In constant time, which reveals nothing about them."""
    given = hashlib.sha256(token.encode()).digest()
    found = [hmac.compare_digest(given, hashlib.sha256(each.encode()).digest()) for each in tokens]
    return any(found)
