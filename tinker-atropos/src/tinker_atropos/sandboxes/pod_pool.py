"""Sandboxes in pods, leased before they are needed. The operator replaces those that have ended.

A Service stands before all of a run's sandboxes and picks one by chance for each connection; one that is leased already
says so, and the next connection leads elsewhere. So nobody needs a list of addresses, which DNS would give half a
minute late.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tinker_atropos.sandboxes.pod_sandbox import PodSandbox, SandboxBusyError, connected
from tinker_atropos.sandboxes.sandbox import SandboxError, SandboxLostError, always

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 600.0
"""How long a rollout waits for a sandbox."""

WANTED_SECONDS: Final = 0.5
"""How often one that waits is asked whether it still does."""

LOOK_SECONDS: Final = 0.25
RARE_LOOK_SECONDS: Final = 2.0
SOON_SECONDS: Final = 15.0
"""Between looks, while sandboxes are missing: often for SOON_SECONDS after the loss of one, then rarely."""

TRIES: Final = 4
"""Connections in one look, for each sandbox of the share: with one free sandbox among them, 98 % of looks find it."""

MOST_TRIES: Final = 64
WARN_SECONDS: Final = 60.0
CLOSED: Final = "the sandboxes are closed: the environment has ended"


class PodSandboxes:
    """At most `share` are held at once, leased to rollouts or waiting for one. They are behind `host` and `port`, and
    belong to the run with the uid `owner`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        owner: str,
        share: int,
        *,
        run_name: str = "NAME",
        lease_seconds: float = LEASE_SECONDS,
        connect: Callable[[], socket.socket] | None = None,
    ) -> None:
        """`run_name` is for messages; `connect` returns a connection to any of the sandboxes, or raises OSError."""
        self._host, self._owner, self._share = host, owner, share
        self._run_name, self._lease_seconds = run_name, lease_seconds
        self._connect = connect or partial(connected, host, port)
        self._waiting: deque[PodSandbox] = deque()
        self._held: set[PodSandbox] = set()
        self._changed = threading.Condition()
        self._wanted = threading.Event()
        self._is_closed = False
        self._last_error, self._next_warning = "", time.monotonic() + WARN_SECONDS
        threading.Thread(target=self._keep, name="sandbox leases", daemon=True).start()

    def lease(self, is_wanted: Callable[[], bool] = always) -> PodSandbox:
        deadline = time.monotonic() + self._lease_seconds
        with self._changed:
            while True:
                if self._is_closed:
                    raise SandboxLostError(CLOSED)
                if not is_wanted():
                    raise SandboxLostError("no sandbox was free until the rollout was over")
                while self._waiting:
                    if not (sandbox := self._waiting.popleft()).is_lost:
                        return sandbox
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SandboxLostError(self._none_is_free())
                self._changed.wait(min(left, WANTED_SECONDS))

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            sandboxes = list(self._held)
            self._changed.notify_all()
        self._wanted.set()
        for sandbox in sandboxes:
            sandbox.close()

    def _none_is_free(self) -> str:
        why = f"; the last fault: {self._last_error}" if self._last_error else ""
        return (
            f"no sandbox was free for {self._lease_seconds:g} s: this environment has {len(self._held)} of at most "
            f"{self._share} in use{why}. spec.sandbox.size says how many there are; see: kubectl get pods -l "
            f"rl-operator.dev/run={self._run_name},app.kubernetes.io/component=sandbox"
        )

    def _keep(self) -> None:
        """What is not found soon is rarely there a moment later, and each look is an effort for all sandboxes."""
        began = time.monotonic()
        while not self._is_closed:
            self._wanted.clear()
            try:
                self._look()
            except Exception:  # whatever it is, rollouts wait for what this thread leases
                logger.exception("looking for sandboxes failed; it is tried again")
            pause = LOOK_SECONDS if time.monotonic() - began < SOON_SECONDS else RARE_LOOK_SECONDS
            if self._wanted.wait(pause if self._is_missing() else None):
                began = time.monotonic()

    def _look(self) -> None:
        """Lease what is missing."""
        for _ in range(min(TRIES * self._share, MOST_TRIES)):
            if not self._is_missing():
                return
            try:
                self._hold(PodSandbox(self._connect(), self._owner, self._has_ended))
            except SandboxBusyError:
                continue
            except (OSError, SandboxError) as error:  # none runs, or the chosen one has just ended
                self._note(f"{self._host}: {error}")
                return

    def _is_missing(self) -> bool:
        return len(self._held) < self._share and not self._is_closed

    def _hold(self, sandbox: PodSandbox) -> None:
        with self._changed:
            is_late = self._is_closed
            if not is_late and not sandbox.is_lost:  # else `_has_ended` came before this
                self._held.add(sandbox)
                self._waiting.append(sandbox)
                self._changed.notify_all()
        if is_late:
            sandbox.close()

    def _has_ended(self, sandbox: PodSandbox) -> None:
        """By the rollout that had it, by its pod, or by the network between."""
        with self._changed:
            self._held.discard(sandbox)
            self._waiting = deque(each for each in self._waiting if each is not sandbox)
        self._wanted.set()

    def _note(self, why: str) -> None:
        """A warning if it has lasted: a sandbox that has ended is replaced within seconds."""
        self._last_error = why
        if self._held:
            self._next_warning = time.monotonic() + WARN_SECONDS
        elif time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + WARN_SECONDS
            logger.warning("no sandbox is to be had: %s; it is tried again until there is one", why)
