"""Why a backend is silent, found out with real sockets on loopback."""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import numpy as np
import pytest
from tests.unit.tinker_atropos.run_configs import run_config

from tinker_atropos.errors import BackendError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend import reachability
from tinker_atropos.trainer.backend.open_training import TrainingOpener
from tinker_atropos.trainer.backend.reachability import explained, reason, shown, why_silent

SOON = 0.5


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Accepts nothing by itself."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        yield listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def answering() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server's URL, and what it answers to whatever it is asked."""
    answer = [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer[0])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", answer


async def test_a_backend_that_answers(answering) -> None:
    url, answer = answering
    assert await why_silent(url) is None
    answer[0] = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"  # the SDK has words of its own for that
    assert await why_silent(url) is None
    answer[0] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    assert await why_silent(url) == "it answers HTTP 503"
    answer[0] = b"SSH-2.0-OpenSSH\r\n"
    assert "without an HTTP answer" in (await why_silent(url) or "")
    answer[0] = b"HTTP/1.1 two hundred\r\n\r\n"
    assert "it does not speak HTTP" in (await why_silent(url) or "")
    tls = await why_silent(url.replace("http:", "https:"))
    assert (tls or "").startswith("TLS fails: "), tls


async def test_a_closed_port(listener: socket.socket) -> None:
    url = url_of(listener)
    listener.close()
    assert "the connection is refused: nothing listens at that port" in (await why_silent(url) or "")


async def test_a_connection_without_an_answer(listener: socket.socket) -> None:
    assert await why_silent(url_of(listener), SOON) == "it accepts the connection and then says nothing"


async def test_packets_that_are_dropped(listener: socket.socket) -> None:
    """The kernel drops what does not fit into a full backlog, as a NetworkPolicy does with everything."""
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(listener.getsockname())
    try:
        why = await why_silent(url_of(listener), SOON)
    finally:
        for each in waiting:
            each.close()
    assert "no packet comes back: does a NetworkPolicy of the namespace" in (why or "")


async def test_a_name_that_does_not_exist() -> None:
    """Where no DNS can be asked at all, the sentence says that instead."""
    why = await why_silent("http://no-such-service.invalid:8005", 20.0) or ""
    assert "no-such-service.invalid" in why
    assert "DNS" in why


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "DNS knows no tinker: is its Service there"),
        (socket.gaierror(socket.EAI_AGAIN, "later"), "DNS gives no answer about tinker: does a NetworkPolicy"),
        (OSError(113, "No route to host"), "no route leads there: does a NetworkPolicy"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "TLS fails: "),
        (httpx.ConnectTimeout("slow"), "no packet comes back"),
        (ValueError("strange"), "ValueError: strange"),
    ],
)
def test_errors_and_their_sentences(error: Exception, said: str) -> None:
    outer = httpx.ConnectError("All connection attempts failed")
    outer.__cause__ = error
    wrapped = error if isinstance(error, httpx.ConnectTimeout | ValueError) else outer
    assert reason(wrapped, "tinker").startswith(said)


def test_a_url_is_shown_without_its_password() -> None:
    assert shown("https://me:secret@tinker.example:8443/api?key=k") == "https://tinker.example:8443/api"


async def test_the_opening_of_training_says_it(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "FIRST_LOOK_SECONDS", 0.0)
    url, said = url_of(listener), list[str | None]()
    listener.close()
    opening = TrainingOpener(Settings(), run_config(backend_deadline_seconds=1.0), url, np.array([1]), said.append)
    with pytest.raises(
        BackendError, match=r"within trainer.backend_deadline_seconds \(1 s\): the connection is refused"
    ):
        await opening.open()
    assert (said[0] or "").startswith(f"The backend at {url} does not answer")
    assert said[-1] is None


async def test_it_is_said_while_it_lasts_and_taken_back(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reachability, "FIRST_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(reachability, "LOOK_SECONDS", 0.01)
    url, said, twice = url_of(listener), list[str | None](), asyncio.Event()
    listener.close()

    def say(why: str | None) -> None:
        said.append(why)
        if len(said) == 2:
            twice.set()

    with caplog.at_level(logging.WARNING):
        assert await explained(asyncio.wait_for(twice.wait(), 60), url, 300.0, say)
    assert said[0] == said[1]
    assert (said[0] or "").startswith(f"The backend at {url} does not answer for a few seconds: the connection is")
    assert said[-1] is None
    [logged] = caplog.messages
    assert logged.endswith("trying for up to 300 s")


async def test_only_an_answer_is_told_as_one(
    answering: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is owed any more when the call that waited has failed, but the backend is as silent as before."""
    monkeypatch.setattr(reachability, "FIRST_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(reachability, "LOOK_SECONDS", 0.01)
    (url, answer), said, told = answering, list[str | None](), asyncio.Event()
    healthy, answer[0] = answer[0], b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
    owed, silent = 8.0, list[str]()

    def say(why: str | None) -> None:
        nonlocal owed
        said.append(why)
        if len(said) == 1:
            owed = 0.0
        elif len(said) == 3:
            silent.extend(caplog.messages)
            answer[0] = healthy
        elif len(said) == 4:
            told.set()

    with caplog.at_level(logging.INFO, reachability.__name__):
        await explained(asyncio.wait_for(told.wait(), 60), url, 300.0, say, lambda: owed)
    assert silent == [f"{url} does not answer: it answers HTTP 503; trying for up to 300 s"]
    assert [message for message in caplog.messages if "HTTP" not in message] == [f"{url} answers"]
    assert said[0] == f"The backend at {url} does not answer for a few seconds: it answers HTTP 503."
    assert said[1:] == [None] * 4


async def test_a_name_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_options: asked.wait(60))
    try:
        why = await why_silent("http://tinker:8005", 0.01) or ""
    finally:
        asked.set()
    assert why.startswith("DNS did not answer within 0.01 s for tinker: does a NetworkPolicy")


def test_the_first_look_leaves_room_in_half_a_minute() -> None:
    """Two bounded waits, and the operator's own look at the trainer, come after it."""
    worst = reachability.FIRST_LOOK_SECONDS + 2 * reachability.PROBE_SECONDS
    assert worst <= 20.0
