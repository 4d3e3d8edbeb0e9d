"""The page of one user: where it listens, and how the browser learns its address."""

import queue
import socket
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.errors import RefusedError
from rl_operator.ui.live_runs import OpenStreams
from rl_operator.ui.local_server import listen, local_app, opened_page

ADDRESS = "http://127.0.0.1:8000/?token=secret&x=1"


def test_a_port_in_use_is_named() -> None:
    with (
        listen(0) as taken,
        pytest.raises(RefusedError, match=r"cannot listen on port \d+: Address already in use; choose"),
    ):
        listen(taken.getsockname()[1])


def test_only_this_machine_is_listened_to() -> None:
    with listen(0) as listener:
        assert (listener.family, listener.getsockname()[0]) == (socket.AF_INET, "127.0.0.1")


def test_the_browsers_command_line_has_no_token() -> None:
    opened: queue.Queue[str] = queue.Queue()
    with opened_page(opened.put, ADDRESS):
        given = opened.get(timeout=60)
        file = Path(unquote(urlsplit(given).path))
        assert "secret" not in given
        assert 'content="0;url=http://127.0.0.1:8000/?token=secret&amp;x=1"' in file.read_text(encoding="utf-8")
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()


async def test_the_page_is_behind_its_gate() -> None:
    run = run_manifest()
    run["metadata"] |= {"uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z"}
    app = local_app(MemoryTarget(run), None, "secret", OpenStreams())  # type: ignore[arg-type]  # of the protocol, what is used
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as browser:
        refused = await browser.get("/runs")
        assert (refused.status_code, refused.headers["content-security-policy"][:18]) == (401, "default-src 'self'")
        assert "<main" in refused.text
        shown = await browser.get("/runs", headers={"Cookie": "rl-ui-8000=secret"})
        assert (shown.status_code, 'href="/runs/default/sorting"' in shown.text) == (200, True)
