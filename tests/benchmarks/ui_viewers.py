"""Who looks at the page in `ui_bench`: viewers of the list, viewers of rollouts, and agents beside them."""

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from tests.integration.tools.agents import agent_over_http

AGENTS = 5
AGENT_PAUSE = 1.0
"""Seconds between two calls of an agent."""

SCRIPT_WAITS = 0.3
"""As the page's script does, so that several changes are one fetch."""

Headers = dict[str, str]


@dataclass
class Server:
    address: str
    root: str
    headers: Headers
    pid: int


@dataclass
class Seen:
    changes: int = 0
    fetches: int = 0
    fetch_seconds: list[float] = field(default_factory=list)


async def look(server: Server, headers: Headers, seen: Seen) -> None:
    async with httpx.AsyncClient(base_url=server.address, headers=headers, timeout=60) as browser:
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(fetch_rows(server, browser, changed, seen))
            async with browser.stream("GET", f"{server.root}/live") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data:"):
                        seen.changes += 1
                        changed.set()


async def fetch_rows(server: Server, browser: httpx.AsyncClient, changed: asyncio.Event, seen: Seen) -> None:
    while True:
        await changed.wait()
        changed.clear()
        await asyncio.sleep(SCRIPT_WAITS)
        began = time.perf_counter()
        answer = await browser.get(f"{server.root}/runs?part=rows")
        assert answer.status_code == 200, answer.text
        seen.fetches += 1
        seen.fetch_seconds.append(time.perf_counter() - began)


@contextmanager
def agents(server: Server, tokens: list[str]) -> Iterator[None]:
    """A session of MCP for each token, which lists the runs and looks at one, again and again."""
    over = threading.Event()
    threads = [threading.Thread(target=_act, args=(server, token, over)) for token in tokens]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _act(server: Server, token: str, over: threading.Event) -> None:
    with agent_over_http(server.address, token, namespace="default") as agent:
        while not over.wait(AGENT_PAUSE):
            agent("rl_list_runs")
            agent("rl_check_status", run_id="run-0001")


@dataclass(frozen=True)
class Opened:
    """Seconds that a page took, in the middle and at most."""

    middle: float
    longest: float


async def open_all(server: Server, viewers: int, path: Callable[[int], str]) -> Opened:
    """All viewers open a page at once. `path`: of each."""
    async with httpx.AsyncClient(base_url=server.address, headers=server.headers, timeout=600) as browser:

        async def opened(viewer: int) -> float:
            began = time.perf_counter()
            answer = await browser.get(server.root + path(viewer))
            assert answer.status_code == 200, answer.text
            return time.perf_counter() - began

        seconds = await asyncio.gather(*map(opened, range(viewers)))
    return Opened(statistics.median(seconds), max(seconds))
