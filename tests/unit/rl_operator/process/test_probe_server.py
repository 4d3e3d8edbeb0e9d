"""Probes and scrapes over real HTTP."""

import socket
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from rl_operator.process.operator_process import PortTakenError, listening, metrics, probe
from rl_operator.telemetry import LEADER

HOST = "127.0.0.1"


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        free: int = listener.getsockname()[1]
        return free


async def get(port: int, path: str, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}{path}", **options) as response:
        return response.status, await response.text()


async def test_a_probe_reports_what_is_wrong(port: int) -> None:
    wrong: list[str] = []
    look: Callable[[], str | None] = lambda: wrong[0] if wrong else None  # noqa: E731 -- a value of that type
    async with listening(HOST, port, {"/healthz": probe(look), "/readyz": probe(lambda: "not yet")}):
        assert await get(port, "/healthz") == (200, "ok")
        wrong.append("the watch of pods stands still")
        assert await get(port, "/healthz") == (503, "the watch of pods stands still")
        assert await get(port, "/readyz") == (503, "not yet")
        assert (await get(port, "/else"))[0] == 404


async def test_a_scrape_refreshes_metrics_that_are_read_on_demand(port: int) -> None:
    async with listening(HOST, port, {"/metrics": metrics(lambda: LEADER.set(1))}):
        code, text = await get(port, "/metrics", headers={"Accept-Encoding": "gzip"})
    assert code == 200
    assert "rl_operator_leader 1.0" in text
    assert "process_resident_memory_bytes" in text


async def test_port_0_disables_the_server() -> None:
    async with listening(HOST, 0, {"/healthz": probe(lambda: None)}):
        pass


async def test_a_port_in_use_is_named(port: int) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, port))
        listener.listen()
        with pytest.raises(PortTakenError, match=rf"/healthz cannot be served at {HOST}:{port}: .*in use"):
            async with listening(HOST, port, {"/healthz": probe(lambda: None)}):
                pass
