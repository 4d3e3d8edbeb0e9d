"""Which context a token grants."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rl_operator.operator_errors import ForbiddenError, UnauthenticatedError
from rl_operator.targets.cluster_target import ClusterTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.tokens_and_hosts import is_among

MAX_CONTEXTS = 256
TRUSTED_SECONDS = 45.0
"""After that, the API server is asked again who owns a token: it may have been revoked."""

ANONYMOUS = "system:anonymous"


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
            return self._fresh(_key(token)) is not None

    def has_met(self, token: str) -> bool:
        with self._lock:
            return _key(token) in self._sessions

    @contextmanager
    def context(self, token: str) -> Iterator[CallContext]:
        try:
            session = self._take(_key(token)) or self._seated(token)
        except UnauthenticatedError:
            self._forget(_key(token))
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
        try:
            caller = target.caller
        except ForbiddenError:
            target.close()
            raise UnauthenticatedError("the API server does not know the token, or it has expired") from None
        except BaseException:
            target.close()
            raise
        if caller in ("", ANONYMOUS):
            target.close()
            raise UnauthenticatedError("the API server does not know this token")
        session = _Session(target, self._context_for(target), self._now(), users=1)
        for former in self._remember(_key(token), session):
            self._close_unused(former)
        return session

    def _remember(self, key: str, session: _Session) -> list[_Session]:
        """Returns those that it displaces."""
        with self._lock:
            former = [self._sessions.pop(key)] if key in self._sessions else []
            self._sessions[key] = session
            while len(self._sessions) > self._most:
                former.append(self._sessions.popitem(last=False)[1])
            for each in former:
                each.given_away = True
        return former

    def _forget(self, key: str) -> None:
        """A token that was right once, and is no longer."""
        with self._lock:
            former = self._sessions.pop(key, None)
            if former is not None:
                former.given_away = True
        if former is not None:
            self._close_unused(former)

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


def _key(token: str) -> str:
    """Tokens themselves are kept only in the connections that present them."""
    return hashlib.sha256(token.encode()).hexdigest()
