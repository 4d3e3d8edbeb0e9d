"""Which context a token grants, and the file of tokens that a server on this machine accepts."""

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rl_operator.operator_errors import ForbiddenError, RefusedError, UnauthenticatedError
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.targets.target import Note
from rl_operator.tools.call_context import CallContext

MAX_CONTEXTS = 256
TRUSTED_SECONDS = 45.0
"""After that, the API server is asked again who owns a token: it may have been revoked."""

ANONYMOUS = "system:anonymous"

MIN_TOKEN: Final = 16
BEARER_SPELLING: Final = "[A-Za-z0-9._~+/-]+=*"
"""As RFC 6750 spells them."""


class Sessions(Protocol):
    """From any thread."""

    def knows(self, token: str) -> bool:
        """Whether `context` needs no call to the API server."""
        ...

    def has_met(self, token: str) -> bool:
        """Whether the token was right when it was last asked about."""
        ...

    def context(self, token: str) -> AbstractContextManager[CallContext]:
        """It stays open inside the block. Raises UnauthenticatedError, TargetUnreachableError."""
        ...


class LocalSessions:
    """For this machine: everyone who knows one of the tokens acts as its user."""

    def __init__(self, context: CallContext, tokens: tuple[str, ...]) -> None:
        self._context = context
        self._tokens = tokens

    def knows(self, token: str) -> bool:
        return is_among(token, self._tokens)

    has_met = knows

    @contextmanager
    def context(self, token: str) -> Iterator[CallContext]:
        if not self.knows(token):
            raise UnauthenticatedError("the token is none of those in the server's file of tokens")
        yield self._context


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
        if line in tokens and not (len(line) >= MIN_TOKEN and re.fullmatch(BEARER_SPELLING, line)):
            raise RefusedError(
                f"line {number} of {path} is not a token: a token has at least {MIN_TOKEN} characters, of letters, "
                "digits and ._~+/-; `openssl rand -hex 32` makes one"
            )
    if mode & 0o077:
        note(f"others on this machine may read the tokens in {path}: chmod 600 {path}")
    return tokens


def make_token(path: Path) -> None:
    """A file with a new token, readable only by its owner; an existing one is kept. Raises RefusedError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        if path.exists():
            return
        why = f"{error.strerror}; name one with --token-file"
        raise RefusedError(f"cannot write the token file {path}: {why}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")


def is_among(token: str, tokens: Iterable[str]) -> bool:
    """In constant time, which reveals nothing about them."""
    given = hashlib.sha256(token.encode()).digest()
    found = [hmac.compare_digest(given, hashlib.sha256(each.encode()).digest()) for each in tokens]
    return any(found)


@dataclass
class _Session:
    """A caller's target. Closed once it is `given_away` and no longer in use."""

    target: ClusterTarget
    context: CallContext
    since: float
    users: int = 0
    given_away: bool = False


class ClusterSessions:
    """Each caller has the rights of their own Kubernetes token and none of ours; the most recent ones are cached."""

    def __init__(
        self,
        target: ClusterTarget,
        context_for: Callable[[ClusterTarget], CallContext],
        *,
        most: int = MAX_CONTEXTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._context_for = context_for
        self._most = most
        self._now = now
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, token: str) -> bool:
        with self._lock:
            return self._fresh(key_of(token)) is not None

    def has_met(self, token: str) -> bool:
        with self._lock:
            return key_of(token) in self._sessions

    @contextmanager
    def context(self, token: str) -> Iterator[CallContext]:
        try:
            session = self._take(key_of(token)) or self._seated(token)
        except UnauthenticatedError:
            self._put(key_of(token), None)
            raise
        try:
            yield session.context
        finally:
            self._leave(session)

    def _take(self, key: str) -> _Session | None:
        with self._lock:
            session = self._fresh(key)
            if session is not None:
                self._sessions.move_to_end(key)
                session.users += 1
        return session

    def _seated(self, token: str) -> _Session:
        """A new caller, identified by the API server."""
        target = self._target.acting_as(token)
        with ExitStack() as unknown:
            unknown.callback(target.close)
            try:
                caller = target.caller
            except ForbiddenError:
                raise UnauthenticatedError("the API server does not know the token, or it has expired") from None
            if caller in ("", ANONYMOUS):
                raise UnauthenticatedError("the API server does not know this token")
            unknown.pop_all()
        session = _Session(target, self._context_for(target), self._now(), users=1)
        self._put(key_of(token), session)
        return session

    def _put(self, key: str, session: _Session | None) -> None:
        """In the place of the session that the token had. None: it was right once, and is no longer."""
        with self._lock:
            former = [self._sessions.pop(key)] if key in self._sessions else []
            if session is not None:
                self._sessions[key] = session
            while len(self._sessions) > self._most:
                former.append(self._sessions.popitem(last=False)[1])
            for each in former:
                each.given_away = True
        for each in former:
            self._close_unused(each)

    def _leave(self, session: _Session) -> None:
        with self._lock:
            session.users -= 1
        self._close_unused(session)

    def _close_unused(self, session: _Session) -> None:
        with self._lock:
            is_over = session.given_away and session.users == 0
        if is_over:
            session.target.close()  # twice does no harm

    def _fresh(self, key: str) -> _Session | None:
        session = self._sessions.get(key)
        return session if session and self._now() - session.since < TRUSTED_SECONDS else None


def key_of(token: str) -> str:
    """Tokens themselves are kept only where they are presented."""
    return hashlib.sha256(token.encode()).hexdigest()
