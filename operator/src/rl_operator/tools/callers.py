"""Whose desk a token opens."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from rl_operator.backends.cluster import ClusterBackEnd
from rl_operator.errors import ForbiddenError, UnauthenticatedError
from rl_operator.tools.access import is_among
from rl_operator.tools.desk import Desk

MAX_DESKS = 256
TRUSTED_SECONDS = 60.0
"""After that the API server is asked again who owns a token: it may have been revoked."""

ANONYMOUS = "system:anonymous"


class Callers(Protocol):
    """From any thread."""

    def knows(self, token: str) -> bool:
        """Whether `desk` costs no call of the API server."""
        ...

    def desk(self, token: str) -> AbstractContextManager[Desk]:
        """It stays open inside the block. Raises UnauthenticatedError, BackEndUnreachableError."""
        ...


class LocalCallers:
    """Of this machine: all who know one of the tokens are its user."""

    def __init__(self, desk: Desk, tokens: tuple[str, ...]) -> None:
        self._desk = desk
        self._tokens = tokens

    def knows(self, token: str) -> bool:
        return is_among(token, self._tokens)

    @contextmanager
    def desk(self, token: str) -> Iterator[Desk]:
        if not self.knows(token):
            raise UnauthenticatedError("the token is none of those in the server's file of tokens")
        yield self._desk


@dataclass
class _Seat:
    """A caller's back end. Closed when it is `given_away` and nobody uses it any more."""

    backend: ClusterBackEnd
    desk: Desk
    since: float
    users: int = 0
    given_away: bool = False


class ClusterCallers:
    """Each has the rights of their own Kubernetes token and none of ours; those who came last are remembered."""

    def __init__(
        self,
        backend: ClusterBackEnd,
        desk_at: Callable[[ClusterBackEnd], Desk],
        *,
        most: int = MAX_DESKS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._desk_at = desk_at
        self._most = most
        self._now = now
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._lock = threading.Lock()

    def knows(self, token: str) -> bool:
        with self._lock:
            return self._fresh(_key(token)) is not None

    @contextmanager
    def desk(self, token: str) -> Iterator[Desk]:
        seat = self._take(_key(token)) or self._seated(token)
        try:
            yield seat.desk
        finally:
            self._leave(seat)

    def _take(self, key: str) -> _Seat | None:
        with self._lock:
            seat = self._fresh(key)
            if seat is not None:
                self._seats.move_to_end(key)
                seat.users += 1
        return seat

    def _seated(self, token: str) -> _Seat:
        """A newcomer. The API server says who they are."""
        backend = self._backend.acting_as(token)
        try:
            caller = backend.caller
        except ForbiddenError:
            backend.close()
            raise UnauthenticatedError("the API server does not know the token, or it has expired") from None
        except BaseException:
            backend.close()
            raise
        if caller in ("", ANONYMOUS):
            backend.close()
            raise UnauthenticatedError("the API server takes the token for nobody's")
        seat = _Seat(backend, self._desk_at(backend), self._now(), users=1)
        for former in self._remember(_key(token), seat):
            self._close_unused(former)
        return seat

    def _remember(self, key: str, seat: _Seat) -> list[_Seat]:
        """Returns those whose place it takes."""
        with self._lock:
            former = [self._seats.pop(key)] if key in self._seats else []
            self._seats[key] = seat
            while len(self._seats) > self._most:
                former.append(self._seats.popitem(last=False)[1])
            for each in former:
                each.given_away = True
        return former

    def _leave(self, seat: _Seat) -> None:
        with self._lock:
            seat.users -= 1
        self._close_unused(seat)

    def _close_unused(self, seat: _Seat) -> None:
        with self._lock:
            is_over = seat.given_away and seat.users == 0
        if is_over:
            seat.backend.close()  # twice does no harm

    def _fresh(self, key: str) -> _Seat | None:
        seat = self._seats.get(key)
        return seat if seat and self._now() - seat.since < TRUSTED_SECONDS else None


def _key(token: str) -> str:
    """Tokens themselves are kept nowhere but in the connections that present them."""
    return hashlib.sha256(token.encode()).hexdigest()
