"""Servers of sandboxes as pods run them, here as processes of this machine on loopback."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from tinker_atropos.sandboxes.local_pool import ROOT
from tinker_atropos.sandboxes.pod_pool import PodSandbox, connected

OWNER: Final = "uid-of-the-run"
START: Final = (
    f"import sys; sys.path.append({ROOT!r}); "
    "from tinker_atropos.sandboxes.sandbox_server.pod_server import main; main()"
)
AS_FIRST_PROCESS: Final = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""A command: what follows is the first process of a pid namespace, as in a container."""


class PodProcess:
    """One pod. Connections may come at once: its socket listens before it is started."""

    def __init__(self, place: Path, prefix: Sequence[str] = (), **settings: Any) -> None:
        self.folder, self._is_prefixed = place / "agent", bool(prefix)
        limits = {"memory_mb": 512, "disk_mb": 64, "processes": 64, "seconds": 600}
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.address = ("127.0.0.1", listening.getsockname()[1])
            given = {"listen_fd": listening.fileno(), "owner": OWNER, "folder": str(self.folder), **limits, **settings}
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-I", "-S", "-B", "-c", START, json.dumps(given)],
                pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def leased(self, owner: str = OWNER) -> PodSandbox:
        return PodSandbox(connected(*self.address), owner)

    def told(self, line: bytes) -> bytes:
        """Everything that the server says until it closes a connection that begins so."""
        with connected(*self.address) as stream:
            stream.settimeout(60)
            stream.sendall(line)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # it was closed with a part of the line unread
                while more := stream.recv(4096):
                    answer += more
            return answer

    def exit_code(self) -> int:
        """Once it has ended by itself."""
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_prefixed:
            self.process.kill()  # unshare ignores SIGTERM
        else:
            self.process.terminate()
        self.process.wait(60)
