"""What a server does with a stream that is not as it should be."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS

from tinker_atropos.sandboxes import stream_sandbox
from tinker_atropos.sandboxes.sandbox import SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server import server
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.server import SandboxServer
from tinker_atropos.sandboxes.stream_sandbox import StreamSandbox


class Served:
    """A server in a thread of this process, and the client's end of its stream."""

    def __init__(self, folder: Path) -> None:
        self.stream, self.theirs = socket.socketpair()
        self.worked: list[str] = []
        self.watch = ProcessWatch(64, 4)
        self.server = SandboxServer(
            self.theirs,
            str(folder),
            self.watch,
            ["a wall"],
            {"PATH": "/bin"},
            at_work=lambda: self.worked.append("once more"),
        )
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # its client left without reading everything
            self.server.serve()

    def has_returned(self) -> bool:
        self.thread.join(SECONDS)
        return not self.thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.stream.close()
    assert served.has_returned()
    served.theirs.close()


def test_once_a_sandbox_ends_its_end_is_the_only_answer(served: Served) -> None:
    """A command that cannot start any more, and one that was killed, are lost: they have no result of their own."""
    served.watch.close()
    served.server._answer({"id": 1, "method": "run", "program": "true", "stdin": "", "folder": None, "env_vars": {},
                           "timeout": SECONDS, "max_output": 100})  # fmt: skip
    assert served.worked
    served.stream.setblocking(False)
    with pytest.raises(BlockingIOError):
        served.stream.recv(1)


def test_what_works_in_the_sandbox_is_told_apart(served: Served) -> None:
    sandbox = StreamSandbox(served.stream)
    assert sandbox._ask("walls") == ["a wall"]
    assert not served.worked
    sandbox.write_file("a", b"")
    assert len(served.worked) == 1
    sandbox.close()


def test_a_client_that_does_not_read_loses_the_stream(served: Served) -> None:
    served.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 10_000))
    for _ in range(2):
        served.server.send({"id": 1, "result": "x" * 2**22})
    assert served.has_returned()


def test_a_line_that_is_too_long_ends_the_stream(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_REQUEST_BYTES", 100)
    served.stream.sendall(b'{"id": 1, "method": "walls"}\n')
    with served.stream.makefile("rb") as answers:
        assert json.loads(answers.readline())["result"] == ["a wall"]
    served.stream.sendall(b"x" * 200)
    assert served.has_returned()


def test_the_client_refuses_what_is_too_long(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sandbox goes on."""
    sandbox = StreamSandbox(served.stream)
    monkeypatch.setattr(stream_sandbox, "MAX_REQUEST_BYTES", 2**20)
    with pytest.raises(SandboxError, match="too much at once: 2 MiB as it is sent, of at most 1 MiB") as refused:
        sandbox.write_file("a", bytes(2 * 2**20))
    assert not isinstance(refused.value, SandboxLostError)
    sandbox.write_file("a", b"on")
    assert sandbox.read_file("a", 2) == b"on"
    sandbox.close()


def test_the_last_line_says_why(served: Served) -> None:
    sandbox = StreamSandbox(served.stream)
    served.server.send_last("its time is over")
    served.theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(SandboxLostError, match="the sandbox is gone: its time is over"):
        sandbox.write_file("a", b"")


def test_the_last_line_waits_for_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for an answer that is not read, nor for room in the stream."""
    monkeypatch.setattr(server, "LAST_LINE_SECONDS", 0.01)
    with served.server._sending:
        served.server.send_last("one")
    served.theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while served.theirs.send(b"x" * 4096):
            pass
    served.theirs.setblocking(True)
    served.server.send_last("two")
