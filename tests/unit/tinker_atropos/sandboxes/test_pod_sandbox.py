"""Leases that fail, and what a sandbox says of its end."""

import socket
import threading
from collections.abc import Callable

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, eventually, shell
from tests.unit.tinker_atropos.sandboxes.pod_servers import OWNER, PodProcess

from tinker_atropos.sandboxes.pod_sandbox import PodSandbox, connected
from tinker_atropos.sandboxes.sandbox import SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.tcp_stream import prepare


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n", b"[]\n", b"1\n", b'{"id": 1, "result": {}}\n', b"x" * 100_000, b"\xff\n"],
    ids=["nothing", "HTTP", "a list", "a number", "no lease", "too much", "no UTF-8"],
)
def test_another_program_is_no_sandbox(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(answer)
    theirs.shutdown(socket.SHUT_WR)
    with theirs, pytest.raises(SandboxLostError, match="it cannot be leased"):
        PodSandbox(ours, OWNER)
    assert ours.fileno() == -1


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        connected("127.0.0.1", port)


def test_the_connection_is_watched() -> None:
    """By the kernel: tests cannot lose a node."""
    with socket.create_server(("127.0.0.1", 0)) as server, connected(*server.getsockname()) as stream:
        prepare(stream)
        options = ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        asked = [stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in options]
        assert asked == [1, 10, 5, 3, 30_000]
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert stream.gettimeout() is None


def test_its_end_is_told_once(pod: Callable[..., PodProcess]) -> None:
    served, ends = pod(), []
    sandbox = PodSandbox(connected(*served.address), OWNER, lambda _: ends.append(threading.current_thread().name))
    assert shell(sandbox, "echo on").output == "on\n"
    served.process.kill()
    eventually("lost", lambda: ends)
    assert sandbox.is_lost
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxLostError, match="the sandbox is gone"):
        shell(sandbox, "true", SECONDS)
    assert len(ends) == 1
