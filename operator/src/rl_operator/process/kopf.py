"""All of the glue between kopf and the operator: docs/decisions/kopf.md says why it is here, and what it costs.

kopf watches our kinds and calls one event handler per kind, which only enqueues. It stores nothing in our objects
(`NoDiffBase`, `NoProgress`), and our own list finds what vanished while its watch had a gap (`Gaps`).
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import kopf

from rl_operator.api.names import GROUP, MANAGER, VERSION
from rl_operator.cluster.api_server.client import INACTIVITY_SECONDS, PAGE_SIZE, WATCH_SECONDS, ClusterClient
from rl_operator.cluster.api_server.resources import require_kinds
from rl_operator.cluster.cache.informer import pause_after
from rl_operator.operator_errors import ForbiddenError, OperatorError
from rl_operator.process.queue import RawEvent

log = logging.getLogger(__name__)

CANCELLATIONS = 20
CANCELLATION_SECONDS = 0.2


class Backoffs:
    """Endless pauses, as long as our own watches make: the API server may be away for any length of time."""

    def __iter__(self) -> Iterator[float]:
        return map(pause_after, itertools.count(1))


def configure(settings: kopf.OperatorSettings) -> None:
    """Only the parts of kopf that we use stay enabled."""
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.queueing.idle_timeout = 0.1
    settings.networking.request_timeout = 20
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + 10
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()


def build_registry(
    client: ClusterClient,
    *,
    events: Mapping[str, Callable[[RawEvent], None]],
    refused: Callable[[ForbiddenError], None],
    listed: Callable[[], None],
) -> kopf.OperatorRegistry:
    """All handlers. `events` has a callback per plural; `refused` is called when the API server no longer accepts our
    credentials, `listed` when kopf has begun to list one of the kinds.
    """
    registry = kopf.OperatorRegistry()

    async def startup(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)

    async def login(**_: object) -> kopf.AiohttpSession:
        return await _log_in(client, refused, listed)

    kopf.on.startup(registry=registry)(startup)
    kopf.on.login(registry=registry)(login)
    for plural, take in events.items():
        kopf.on.event(GROUP, VERSION, plural, registry=registry)(_handler(take))
    return registry


def _handler(take: Callable[[RawEvent], None]) -> Callable[..., Awaitable[None]]:
    """A coroutine, because kopf runs plain functions in threads."""

    async def handle(event: RawEvent, **_: object) -> None:
        take(event)

    return handle


async def _log_in(
    client: ClusterClient, refused: Callable[[ForbiddenError], None], listed: Callable[[], None]
) -> kopf.AiohttpSession:
    """Our connections and credentials. kopf calls again after every 401: a lasting refusal is the end, not a loop."""
    try:
        await require_kinds(client)
    except ForbiddenError as error:
        refused(error)  # kopf would continue forever without credentials
        raise kopf.PermanentError(str(error)) from error
    except OperatorError as error:
        raise kopf.TemporaryError(str(error), delay=5) from error
    return kopf.AiohttpSession(server=client.server, aiohttp_session=client.kopf_session(listed))


class WatchFailedError(OperatorError):
    """Something that kopf treats as fatal: the process ends, and the next one continues."""


async def _cancel_all_but(ours: AbstractSet[asyncio.Task[object]]) -> None:
    """Repeatedly: kopf's tasks sometimes mistake a cancellation for something else, and continue."""
    for _ in range(CANCELLATIONS):
        left = asyncio.all_tasks() - ours
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCELLATION_SECONDS)


async def serve_kopf(
    registry: kopf.OperatorRegistry, namespace: str | None, over: asyncio.Event, spawned: Callable[[], None]
) -> None:
    """Watch until `over` or cancelled; raises what ended kopf. `spawned` is called once kopf has its signal handlers.

    Not by `kopf.run_tasks`: if one watch fails for good, it waits forever for the other ones, and nothing is watched.
    Whatever ends it, every task that began after it is cancelled.
    """
    ours = asyncio.all_tasks()
    try:
        tasks = await kopf.spawn_tasks(
            registry=registry,
            clusterwide=namespace is None,
            namespaces=[namespace] if namespace else [],
            identity=MANAGER,  # kopf's default asks for the user's name, which an unprivileged uid does not have
            stop_flag=over,
        )
        spawned()
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            if error := task.exception():
                raise WatchFailedError(f"kopf has given up watching our kinds: {error}") from error
    finally:
        await _cancel_all_but(ours)
        asyncio.get_running_loop().set_exception_handler(_note_leftover)


def _note_leftover(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Exceptions of kopf's abandoned tasks: asyncio would print tracebacks after our last message."""
    log.debug("left by kopf: %s", context["message"], exc_info=context.get("exception"))


class NoDiffBase(kopf.DiffBaseStorage):  # type: ignore[misc]  # kopf is untyped here
    """Without change handlers there is nothing to compare; the default copies every object for that."""

    def build(self, **_: object) -> object:
        return {}

    def fetch(self, **_: object) -> None:
        return None

    store = fetch


class NoProgress(kopf.ProgressStorage):  # type: ignore[misc]  # kopf is untyped here
    """Event handlers have no progress."""

    def fetch(self, **_: object) -> None:
        return None

    store = purge = touch = fetch

    def clear(self, *, essence: object) -> object:
        return essence


GATHER_SECONDS = 1.0
"""kopf lists all of our kinds after the API server was away: one list of ours serves them all."""
RETRY_SECONDS = 5.0


class Gaps:
    """A gap arises where kopf lists a kind: at its start, and when its watch has expired."""

    def __init__(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close = close
        self._open = asyncio.Event()

    def note(self) -> None:
        """A list of kopf's has begun: kopf watches from its version on, and a list of ours that begins now is later."""
        self._open.set()

    async def run(self) -> None:
        """Close gaps forever; ends only by cancellation."""
        while True:
            await self._open.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._open.clear()
            try:
                await self._close()
            except OperatorError as error:
                log.warning("our kinds cannot be listed again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                self._open.set()
