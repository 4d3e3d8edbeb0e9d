"""The process `tinker-atropos rollouts`: serves what a trainer kept, as that trainer served it, until nobody asks.

The trainer has the same routes: `GET /rollouts` and `GET /rollouts/NAME`, the files of a store; with `Range`, what a
reader lacks of one.
"""

import asyncio
import contextlib
import logging
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_contract.env_vars import RL_OPS_PORT
from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.rollout_store import BoundedFolder, RolloutStore, WritableStore, interval, parse_name
from tinker_atropos.serving import bind, guarded, json_response, serve
from tinker_atropos.settings import Settings

MEDIA_TYPE = "application/zstd"

_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
"""Readers of files that grow ask for what follows a byte. Other forms are answered with the whole file, as RFC 9110
allows.
"""


FILES_AT_ONCE: Final = 4
"""A file is in memory until its reader has taken it, and a trainer has little to spare: further readers wait."""

SEND_SECONDS: Final = 300
"""A reader that takes longer over one file is cut off: others wait behind it."""

PIECE_BYTES: Final = 2**18


def open_store(url: str) -> WritableStore:
    """The bucket at `s3://BUCKET/FOLDER`; nothing is called yet. Only this loads its library. Raises ConfigError."""
    try:
        from tinker_atropos.rollout_files.object_store import BucketStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"RL_ROLLOUTS_URL is {url!r}, and {error.name} is missing: pip install 'tinker-atropos[object-store]'"
        ) from None
    return BucketStore(url)


def kept_rollouts(settings: Settings) -> RolloutStore:
    """What outlived a trainer, for readers. Raises ConfigError."""
    if settings.rollouts_url:
        return open_store(settings.rollouts_url)
    if settings.rollouts_dir:
        return BoundedFolder(Path(settings.rollouts_dir), limit_bytes=0)
    raise ConfigError("RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL must say where the rollouts are, and neither is set")


def rollout_routes(store: RolloutStore, state: Callable[[], dict[str, object]]) -> list[Route]:
    """`state` gives `every` and `note` of the listing."""

    async def list_files(_request: Request) -> Response:
        try:
            sizes = await asyncio.to_thread(store.names)
        except OSError as error:
            return json_response({"error": f"the rollouts cannot be listed: {error}"}, 503)
        files = [{"name": name, "bytes": sizes[name]} for name in sorted(sizes)]
        return json_response({"files": files, **state()})

    slots = asyncio.Semaphore(FILES_AT_ONCE)

    async def send_file(request: Request) -> ASGIApp:
        async def send_in_turn(scope: Scope, receive: Receive, send: Send) -> None:
            with contextlib.suppress(TimeoutError):
                async with slots, asyncio.timeout(SEND_SECONDS):
                    await (await read_file(request))(scope, receive, send)

        return send_in_turn

    async def read_file(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            content = await asyncio.to_thread(store.read, name)
        except FileNotFoundError:
            return json_response({"error": f"there is no file {name!r}; GET /rollouts lists them"}, 404)
        except OSError as error:
            return json_response({"error": f"{name} cannot be read: {error}"}, 503)
        return _part(name, content, request.headers.get("range", ""))

    return [Route("/rollouts", list_files), Route("/rollouts/{name}", send_file)]


def _part(name: str, content: bytes, asked: str) -> Response:
    """What of the file `asked`, a `Range`, names: 206, or 416 if the file ends before it; else all of it."""
    headers, size = {"Accept-Ranges": "bytes"}, len(content)
    found = _RANGE.fullmatch(asked)
    first, last = (int(found[1]), int(found[2] or size - 1)) if found else (0, -1)
    if found is None or (found[2] and last < first):
        return _in_pieces(memoryview(content), 200, headers)
    if first >= size:
        answer = json_response({"error": f"{name} has {size} bytes, and {asked!r} begins after them"}, 416)
        answer.headers["Content-Range"] = f"bytes */{size}"
        return answer
    last = min(last, size - 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return _in_pieces(memoryview(content)[first : last + 1], 206, headers)


def _in_pieces(content: memoryview, status_code: int, headers: Mapping[str, str]) -> Response:
    """A piece is sent once the reader has taken the one before: the server buffers no more than that."""

    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), PIECE_BYTES):
            yield bytes(content[begin : begin + PIECE_BYTES])

    length = {"Content-Length": str(len(content))}
    return StreamingResponse(pieces(), status_code, {**headers, **length}, MEDIA_TYPE)


logger = logging.getLogger(__name__)

ENOUGH_FILES = 3
"""Fewer do not show an interval: a single step is a multiple of anything."""


class QuietStore:
    """Implements `RolloutStore` over another one, and knows for how long nobody asked."""

    def __init__(self, store: RolloutStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._asked = clock()
        self._every = 1

    @property
    def quiet_seconds(self) -> float:
        return self._clock() - self._asked

    def names(self) -> Mapping[str, int]:
        self._asked = self._clock()
        names = self._store.names()
        self._every = shown_interval(names)
        return names

    def read(self, name: str) -> bytes:
        self._asked = self._clock()
        return self._store.read(name)

    def state(self) -> dict[str, Any]:
        """Beside the listing; as the names show, for there is no trainer to ask."""
        return {"every": self._every, "note": None}


def shown_interval(names: Mapping[str, int]) -> int:
    """Of the steps that are kept: the trainer thins them to those that a power of two divides."""
    steps = [name for name in names if parse_name(name)]
    return interval(steps) if len(steps) >= ENOUGH_FILES else 1


async def serve_rollouts(settings: Settings, idle_exit: float) -> None:
    """Serve until SIGTERM, SIGINT, or `idle_exit` seconds without a question (0: never). Raises RunError."""
    store, stopped = QuietStore(kept_rollouts(settings)), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with bind(settings.ops_host, settings.ops_port, RL_OPS_PORT) as listener:
        async with serve(rollout_app(store, settings.ops_token), listener) as port:
            logger.info("Serving rollouts on port %d.", port)
            await _until_quiet(store, idle_exit, stopped)


def rollout_app(store: QuietStore, token: str | None = None) -> ASGIApp:
    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    return guarded(Starlette(routes=[Route("/healthz", healthz), *rollout_routes(store, store.state)]), token)


async def _until_quiet(store: QuietStore, idle_exit: float, stopped: asyncio.Event) -> None:
    while not stopped.is_set():
        left = idle_exit - store.quiet_seconds if idle_exit else None
        if left is not None and left <= 0:
            logger.info("Nobody asked for %.0f s: done.", idle_exit)
            return
        try:
            await asyncio.wait_for(stopped.wait(), left)
        except TimeoutError:
            continue
