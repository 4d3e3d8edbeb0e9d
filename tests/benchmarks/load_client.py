"""The API server as a benchmark uses it: many calls at once, and moments taken from watches. It costs little: the
measurement must not wait for the client.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import orjson

from rl_operator.cluster.api_server.client import METADATA_ONLY

AT_ONCE = 32
MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"

Item = TypeVar("Item")
Stage = Callable[[dict[str, Any]], str | None]


class LoadClient:
    """JSON calls with one token. A refusal is an error that ends the benchmark."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        return await self._call("POST", path, body, JSON)

    async def patch(self, path: str, body: Any) -> dict[str, Any]:
        return await self._call("PATCH", path, body, MERGE_PATCH)

    async def _call(self, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, self._server + path, data=orjson.dumps(body), headers=headers
        ) as response:
            text = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status}: {text[:500].decode(errors='replace')}")
            answer: dict[str, Any] = orjson.loads(text)
            return answer

    async def watch(self, path: str, *, metadata_only: bool = False) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """All that is there, as ADDED, and then what happens: type and object. Ends only with an error: the API server
        closes the watch of who reads too slowly, and then it goes on from there.
        """
        headers = {"Accept": METADATA_ONLY if metadata_only else JSON}
        timeout, version = aiohttp.ClientTimeout(total=None), ""
        while True:
            url = f"{self._server}{path}?watch=true&timeoutSeconds=7200&resourceVersion={version}"
            async with self._session.get(url, headers=headers, timeout=timeout) as response:
                async for line in response.content:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event["type"], event["object"]


@asynccontextmanager
async def load_client(server: str, token: str) -> AsyncIterator[LoadClient]:
    connector = aiohttp.TCPConnector(limit=AT_ONCE + 8, ssl=False)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**20) as session:
        yield LoadClient(session, server)


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Do the work for every item, so many at once."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())


class Arrivals:
    """When each object of a collection was first seen at each stage, as one watch tells."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.moments: dict[str, dict[str, float]] = defaultdict(dict)
        """`time.monotonic()` by name, by stage."""

    async def follow(self, client: LoadClient, path: str, *, metadata_only: bool = False) -> None:
        async for _, document in client.watch(path, metadata_only=metadata_only):
            stage = self._stage(document)
            if stage is not None:
                self.moments[stage].setdefault(document["metadata"]["name"], time.monotonic())

    async def until(self, stage: str, count: int, seconds: float) -> float:
        """The moment at which so many objects had reached the stage."""
        deadline, seen = time.monotonic() + seconds, self.moments[stage]
        while len(seen) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(seen)} of {count} are {stage} after {seconds:.0f} s")
            await asyncio.sleep(0.02)
        return sorted(seen.values())[count - 1]
