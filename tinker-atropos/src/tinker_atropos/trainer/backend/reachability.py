"""Why a backend does not answer, in a sentence: the SDK retries for minutes and says nothing meanwhile."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from rl_contract.wire import more_than
from tinker_atropos.trainer.backend.answers import HEARD, TRAINING, meaning_of
from tinker_atropos.trainer.backend.sdk_calls import in_thread

logger = logging.getLogger(__name__)

FIRST_LOOK_SECONDS: Final = 8.0
"""A backend that is fine has answered by then."""

LOOK_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 4.0
"""For the name, and again for the answer: what has not come by then is not on its way."""

POLICY: Final = "does a NetworkPolicy of the namespace, or a firewall, keep it from"

Result = TypeVar("Result")
Say = Callable[[str | None], None]
"""Told a sentence while the backend is silent, and None when it is no longer."""


async def explained(
    work: Awaitable[Result],
    base_url: str,
    deadline_seconds: float,
    say: Say,
    seconds_waited: Callable[[], float] | None = None,
) -> Result:
    """The work's result; meanwhile `say` hears why the backend does not answer.

    `seconds_waited`: for how long it owes an answer; None: for as long as the work takes.
    """
    begun = time.monotonic()
    # while it asks for patience, it does answer
    waited = seconds_waited or (lambda: 0.0 if HEARD.paused(TRAINING) else time.monotonic() - begun)
    watch = asyncio.ensure_future(_watch(base_url, deadline_seconds, say, waited))
    try:
        return await work
    finally:
        watch.cancel()
        say(None)


async def _watch(base_url: str, deadline_seconds: float, say: Say, seconds_waited: Callable[[], float]) -> None:
    logged = ""
    while True:
        waited = seconds_waited()
        late = waited >= FIRST_LOOK_SECONDS
        trouble = HEARD.trouble() if late else None
        # a wait may also end because the call has failed
        why = f"it answers {trouble}" if trouble else await why_silent(base_url) if late or logged else None
        if late and why and why != logged:
            logger.warning("%s does not answer: %s; trying for up to %g s", shown(base_url), why, deadline_seconds)
            logged = why
        elif logged and not why:
            logger.info("%s answers", shown(base_url))
            logged = ""
        what = f"answers {trouble}" if trouble else f"does not answer for {more_than(waited)}: {why}"
        say(f"The backend at {shown(base_url)} {what}." if late and why else None)
        await asyncio.sleep(LOOK_SECONDS if late else FIRST_LOOK_SECONDS - waited)


async def why_silent(base_url: str, seconds: float = PROBE_SECONDS) -> str | None:
    """Ask the backend for its health, with bounded waits. None: it answers."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    proxied = parts.scheme in getproxies() and not proxy_bypass(host)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if not proxied:  # a proxy looks the name up itself
            looked_up = in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            await asyncio.wait_for(looked_up, seconds)
    except TimeoutError:
        return f"DNS did not answer within {seconds:g} s for {host}: {POLICY} the cluster's DNS?"
    except (OSError, ValueError) as error:
        return reason(error, host)
    try:
        async with httpx.AsyncClient(timeout=seconds) as client:
            response = await client.get(f"{base_url.rstrip('/')}/api/v1/healthz")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return reason(error, host)
    meaning = meaning_of(response)  # what asks for patience does answer: calls wait for it
    return f"it answers {meaning.said}" if response.status_code >= 500 and meaning.cause is None else None


def reason(error: BaseException, host: str) -> str:
    """What an error of a connection means for who must act."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            if cause.errno == socket.EAI_AGAIN:
                return f"DNS gives no answer about {host}: {POLICY} the cluster's DNS?"
            return f"DNS knows no {host}: is its Service there, and does the URL name its namespace?"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection is refused: nothing listens at that port, so is the service running?"
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails: {getattr(cause, 'verify_message', '') or cause}"
        if isinstance(cause, httpx.ConnectTimeout):
            return f"no packet comes back: {POLICY} it? Or does nothing have that address?"
        if isinstance(cause, httpx.ReadTimeout):
            return "it accepts the connection and then says nothing"
        if isinstance(cause, httpx.RemoteProtocolError | httpx.ReadError | ConnectionResetError):
            return _no_http(cause)
        if isinstance(cause, OSError) and cause.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return f"no route leads there: {POLICY} it?"
    return f"{type(error).__name__}: {error}"


def _no_http(error: Exception) -> str:
    if not isinstance(error, httpx.RemoteProtocolError) or "disconnected" in str(error):
        return (
            "it ends the connection without an HTTP answer: is it about to stop, or does something else listen there?"
        )
    return f"it does not speak HTTP: {error}"


def shown(base_url: str) -> str:
    """The URL without a user or a password."""
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it, outermost last: the operating system's own word says most."""
    inner = error.__cause__ or error.__context__
    if inner is not None:
        yield from _causes(inner)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    yield error
