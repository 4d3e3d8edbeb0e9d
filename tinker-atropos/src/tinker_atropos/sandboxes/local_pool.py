"""Sandboxes on this machine that are started before they are needed."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from weakref import WeakSet

from tinker_atropos.sandboxes.local_sandbox import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Sandbox, SandboxLimits, SandboxLostError, always

logger = logging.getLogger(__name__)


class LocalSandboxes:
    """`warm` of them wait to be leased. When there are none, a lease takes as long as a start."""

    def __init__(
        self, limits: SandboxLimits, warm: int = 2, make: Callable[[SandboxLimits], LocalSandbox] = LocalSandbox
    ) -> None:
        self._limits, self._warm, self._make = limits, warm, make
        self._ready: deque[LocalSandbox] = deque()
        self._all: WeakSet[LocalSandbox] = WeakSet()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_closed = False
        self._wanted.set()
        threading.Thread(target=self._refill, name="warm sandboxes", daemon=True).start()

    def lease(self, is_wanted: Callable[[], bool] = always) -> LocalSandbox:  # noqa: ARG002 -- there is no wait
        leased = self._taken()
        self._wanted.set()
        return leased or self._made()

    def give_back(self, sandbox: Sandbox) -> None:
        with self._lock:
            if isinstance(sandbox, LocalSandbox) and not self._is_closed:
                self._ready.append(sandbox)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            sandboxes = list(self._all)
        self._wanted.set()
        for sandbox in sandboxes:
            sandbox.close()

    def _taken(self) -> LocalSandbox | None:
        """One that waits, and was not killed while it waited."""
        with self._lock:
            if self._is_closed:
                raise SandboxLostError("the sandboxes are closed: the environment has ended")
            ready = [self._ready.popleft() for _ in range(len(self._ready))]
            alive = [sandbox for sandbox in ready if not sandbox.is_lost]
            self._ready.extend(alive[1:])
        for sandbox in ready:
            if sandbox.is_lost:
                sandbox.close()
        return alive[0] if alive else None

    def _made(self) -> LocalSandbox:
        sandbox = self._make(self._limits)
        with self._lock:
            self._all.add(sandbox)
            is_late = self._is_closed
        if is_late:
            sandbox.close()
            raise SandboxLostError("the sandboxes were closed while one was started: the environment has ended")
        return sandbox

    def _refill(self) -> None:
        while self._wanted.wait() and not self._is_closed:
            self._wanted.clear()
            while len(self._ready) < self._warm and not self._is_closed:
                try:
                    sandbox = self._made()
                except SandboxLostError as error:
                    if not self._is_closed:
                        logger.warning("no sandbox can be kept ready: %s", error)
                    break  # whoever leases one is told so
                with self._lock:
                    self._ready.append(sandbox)
