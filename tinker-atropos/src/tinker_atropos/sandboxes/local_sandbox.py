"""A sandbox on this machine: a tool server in a process of its own, on the other end of a socket."""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tinker_atropos.sandboxes.sandbox import NotIsolatedError, SandboxLimits, SandboxLostError
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
    wanted = {
        "memory_mb": limits.memory_mb,
        "disk_mb": limits.disk_mb,
        "processes": limits.processes,
        "network": limits.network,
        "plain": plain,
    }
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
