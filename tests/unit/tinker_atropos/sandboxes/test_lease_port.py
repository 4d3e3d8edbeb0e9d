"""Who gets the lease, of connections that this process makes by itself."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tinker_atropos.sandboxes.sandbox_server.lease_port import MOST_SILENT, LeasePort

ASKED = b'{"id": 7, "method": "lease", "owner": "me"}\n'


class ListenedTo:
    """A listener, its port, and what it has leased."""

    def __init__(self, listening: socket.socket, silent_seconds: float) -> None:
        self.leased: list[tuple[socket.socket, Any]] = []
        self._address = listening.getsockname()
        self._listener = LeasePort(listening, "me", lambda *lease: self.leased.append(lease), silent_seconds)

    def caller(self, *said: bytes) -> socket.socket:
        """A new connection, heard after each thing that it says."""
        stream = socket.create_connection(self._address, 60)
        self._listener.look()
        for each in said:
            stream.sendall(each)
            self._listener.look()
        return stream

    def look(self) -> None:
        self._listener.look()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def listened(listening: socket.socket) -> Iterator[ListenedTo]:
    listened = ListenedTo(listening, silent_seconds=60.0)
    yield listened
    for stream, _ in listened.leased:
        stream.close()


def error_of(stream: socket.socket) -> Any:
    with stream, stream.makefile("rb") as answer:
        return json.loads(answer.read())["error"]


def is_closed(stream: socket.socket) -> bool:
    with stream:
        try:
            return stream.recv(1) == b""
        except ConnectionResetError:
            return True


def test_the_first_that_asks_gets_it(listened: ListenedTo) -> None:
    silent, slow = listened.caller(), listened.caller(ASKED[:20])
    with listened.caller(ASKED):
        ((_, number),) = listened.leased
        assert number == 7
        slow.sendall(ASKED[20:])
        listened.look()
        assert error_of(slow) == "busy"
        assert error_of(listened.caller(ASKED)) == "busy"
        silent.sendall(b"nonsense\n")
        listened.look()
        assert is_closed(silent)
    assert len(listened.leased) == 1


def test_another_owner_is_told_so(listened: ListenedTo) -> None:
    for owner in (b'"you"', b"null", b'["me"]'):
        assert error_of(listened.caller(ASKED.replace(b'"me"', owner))) == "this sandbox belongs to another run"
    assert not listened.leased


@pytest.mark.parametrize(
    "said", [b"{}\n", b"null\n", b"\xff\n", b"[" * 4000 + b"\n", ASKED + b"x", ASKED + ASKED, b"x" * 4096]
)
def test_nonsense_is_closed(listened: ListenedTo, said: bytes) -> None:
    assert is_closed(listened.caller(said))
    assert not listened.leased


def test_one_that_left_is_forgotten(listened: ListenedTo) -> None:
    listened.caller().close()
    listened.look()
    listened.caller(ASKED).close()
    assert len(listened.leased) == 1


def test_one_that_did_not_wait_for_its_lease_does_not_get_it(listened: ListenedTo) -> None:
    caller = listened.caller()
    caller.sendall(ASKED)
    caller.close()
    listened.look()
    assert not listened.leased
    with listened.caller(ASKED):
        assert len(listened.leased) == 1


def test_one_that_says_nothing_is_closed(listening: socket.socket) -> None:
    listened = ListenedTo(listening, silent_seconds=0.0)
    assert is_closed(listened.caller())


def test_of_those_that_say_nothing_the_oldest_has_to_go(listened: ListenedTo) -> None:
    callers = [listened.caller() for _ in range(MOST_SILENT)]
    callers += [listened.caller(), listened.caller()]
    assert [is_closed(each) for each in callers[:2]] == [True, True]
    for caller in callers[2:]:
        caller.sendall(ASKED)
        listened.look()
    errors = [error_of(each) for each in callers[3:]]
    assert (len(listened.leased), errors) == (1, ["busy"] * (MOST_SILENT - 1))
    callers[2].close()
