"""Sandboxes on this machine: each a tool server in a process of its own, on the other end of a socket, started before
it is needed.
"""

import json
import logging
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final
from weakref import WeakSet

from tinker_atropos.sandboxes.sandbox import NotIsolatedError, Sandbox, SandboxLimits, SandboxLostError, always
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import remove_folder
from tinker_atropos.sandboxes.sandbox_server.walls import NO_NETWORK, PROCESSES, keep_from_inspection
from tinker_atropos.sandboxes.stream_sandbox import ANSWER_SECONDS, StreamSandbox

ROOT: Final = str(Path(__file__).parents[2])
START: Final = (
    f"import sys; sys.path.append({ROOT!r}); "
    "from tinker_atropos.sandboxes.sandbox_server.local_server import main; main()"
)
END_SECONDS: Final = 10
"""How long a server may take to end everything before it is killed."""

NOT_ISOLATED: Final = (
    "no sandbox is started: this machine allows no namespaces, as most pods, and an agent's commands could reach the "
    "trainer; set spec.sandbox of the run, which puts sandboxes into pods of their own, use toolsets without a sandbox "
    "(enabled_toolsets: []), or local mode on a kernel that allows namespaces"
)


class LocalSandbox(StreamSandbox):
    """`walls` names those that stand around it; where namespaces are not allowed there are hardly any.

    Without them, this process keeps its memory and environment from other programs of its user, for good: a command
    could read its keys.
    """

    def __init__(self, limits: SandboxLimits, *, plain: bool = False) -> None:
        """`plain`: do not use namespaces. Raises SandboxLostError if it does not start, NotIsolatedError if it must be
        isolated and cannot be.
        """
        try:
            self.folder = tempfile.mkdtemp(prefix="rl-sandbox-")
            stream, self._process = _started(limits, self.folder, plain=plain)
            super().__init__(stream)
        except (OSError, RuntimeError) as error:  # no more files, processes or threads
            raise SandboxLostError(f"no sandbox can be started: {error}") from error
        try:
            self.walls: Sequence[str] = self._ask("walls")
        except SandboxLostError:
            self.close()
            raise
        if PROCESSES not in self.walls:
            keep_from_inspection()
        if limits.must_isolate and NO_NETWORK not in self.walls:
            self.close()
            raise NotIsolatedError(NOT_ISOLATED)

    def close(self) -> None:
        """The server sees that the stream has ended, and takes everything with it."""
        super().close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if Path(self.folder).exists():  # its processes were killed before they could remove it
            remove_folder(self.folder)


def _started(limits: SandboxLimits, folder: str, *, plain: bool) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end of its stream, and its outer process. Raises OSError, and removes the folder."""
    wanted = {**asdict(limits), "plain": plain}
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ANSWER_SECONDS, 0))
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603  # our own server
                [sys.executable, "-I", "-S", "-B", "-c", START, str(theirs.fileno()), folder, json.dumps(wanted)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in ("PATH",) if name in os.environ},
            )
        except OSError:
            ours.close()
            remove_folder(folder)
            raise
    return ours, process


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
