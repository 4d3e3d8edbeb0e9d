"""The program that serves what a trainer kept, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.rollout_server import (
    FILES_AT_ONCE,
    QuietStore,
    kept_rollouts,
    rollout_app,
    rollout_routes,
    serve_rollouts,
    shown_interval,
)
from tinker_atropos.rollout_files.rollout_store import BoundedFolder, StepFile
from tinker_atropos.serving import bind, serve
from tinker_atropos.settings import load_settings


def write(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"{step:06d}-1.jsonl.zst").write_bytes(b"x" * step)


@pytest.fixture
async def rollouts_client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = rollout_app(QuietStore(BoundedFolder(tmp_path, 0)))
    async with (
        serve(app, bind("127.0.0.1", 0, "the port")) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client


async def test_the_routes_of_a_trainer(rollouts_client: httpx.AsyncClient, tmp_path: Path) -> None:
    write(tmp_path, 0, 4, 8)
    listed = await rollouts_client.get("/rollouts")
    assert listed.json() == {
        "files": [{"name": f"{step:06d}-1.jsonl.zst", "bytes": step} for step in (0, 4, 8)],
        "every": 4,
        "note": None,
    }
    assert (await rollouts_client.get("/rollouts/000004-1.jsonl.zst")).content == b"xxxx"
    assert (await rollouts_client.get("/rollouts/000005-1.jsonl.zst")).status_code == 404
    assert (await rollouts_client.get("/rollouts/..%2Fpasswd")).status_code == 404
    assert (await rollouts_client.get("/healthz")).text == "ok"


async def test_readers_of_kept_rollouts_need_the_pods_token(tmp_path: Path) -> None:
    write(tmp_path, 4)
    now = 100.0
    store = QuietStore(BoundedFolder(tmp_path, 0), lambda: now)
    transport = httpx.ASGITransport(rollout_app(store, "t0ken"), client=("10.1.2.3", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://reader") as client:
        now += 50.0
        for path in ("/rollouts", "/rollouts/000004-1.jsonl.zst"):
            for headers in ({}, {"X-RL-Ops-Token": "token"}):
                assert (await client.get(path, headers=headers)).status_code == 401
        assert store.quiet_seconds == 50.0, "who is refused does not keep it alive"
        assert (await client.get("/rollouts", headers={"X-RL-Ops-Token": "t0ken"})).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


class CountingStore:
    """One large file; how many answers hold it at once is counted."""

    content = b"x" * (4 * 2**20)

    def __init__(self) -> None:
        self.reads = 0

    def names(self) -> dict[str, int]:
        return {"000001-1.jsonl.zst": len(self.content)}

    def read(self, _name: str) -> bytes:
        self.reads += 1
        return self.content


async def test_readers_that_do_not_read_hold_few_files_in_memory() -> None:
    """Twenty of them: the others wait until one has taken its file, or hung up."""
    store = CountingStore()
    app = Starlette(routes=rollout_routes(store, dict))
    async with serve(app, bind("127.0.0.1", 0, "the port")) as port, asyncio.timeout(60):
        lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(20)]
        for _, writer in lazy:
            writer.write(b"GET /rollouts/000001-1.jsonl.zst HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.gather(*(reader.read(1) for reader, _ in lazy[:FILES_AT_ONCE]))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
            assert (await client.get("/rollouts")).status_code == 200, "a list waits for nobody"
            assert store.reads <= FILES_AT_ONCE
            for _, writer in lazy:
                writer.transport.abort()
            assert (await client.get("/rollouts/000001-1.jsonl.zst")).content == store.content


@pytest.mark.parametrize(
    ("steps", "every"), [((), 1), ((8,), 1), ((0, 8), 1), ((0, 1, 2), 1), ((0, 6, 8), 2), ((16, 32, 48), 16)]
)
def test_the_interval_is_what_the_names_show(steps: tuple[int, ...], every: int) -> None:
    assert shown_interval({f"{step:06d}-1.jsonl.zst": 1 for step in steps}) == every


def test_each_question_begins_its_rest_again(tmp_path: Path) -> None:
    write(tmp_path, 1)
    now = 100.0
    store = QuietStore(BoundedFolder(tmp_path, 0), lambda: now)
    for ask in (store.names, lambda: store.read("000001-1.jsonl.zst")):
        now += 50.0
        assert store.quiet_seconds == 50.0
        ask()
        assert store.quiet_seconds == 0.0


async def test_it_ends_when_nobody_asks(tmp_path: Path) -> None:
    settings = load_settings(
        "trainer", {"RL_ROLLOUTS_DIR": str(tmp_path), "RL_OPS_HOST": "127.0.0.1", "RL_OPS_PORT": "0"}
    )
    await asyncio.wait_for(serve_rollouts(settings, 0.01), 60)


async def test_without_a_place_it_does_not_start() -> None:
    with pytest.raises(ConfigError):
        await serve_rollouts(load_settings("trainer", {}), 0.01)


def client_of(store) -> httpx.AsyncClient:
    app = Starlette(routes=rollout_routes(store, lambda: {"every": 2, "note": None}))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://trainer")


async def test_files_are_listed_in_order_and_sent(tmp_path) -> None:
    folder = BoundedFolder(tmp_path, 1000)
    for step in (12, 0, 2):
        folder.append(StepFile(step, 1), b"%d" % step)
    async with client_of(folder) as client:
        listed = (await client.get("/rollouts")).json()
        assert listed == {
            "files": [
                {"name": "000000-1.jsonl.zst", "bytes": 1},
                {"name": "000002-1.jsonl.zst", "bytes": 1},
                {"name": "000012-1.jsonl.zst", "bytes": 2},
            ],
            "every": 2,
            "note": None,
        }
        sent = await client.get("/rollouts/000012-1.jsonl.zst")
    assert (sent.content, sent.headers["content-type"]) == (b"12", "application/zstd")
    assert "content-encoding" not in sent.headers, "a client would take the frame off"


@pytest.mark.parametrize("name", ["000013-1.jsonl.zst", "secret", "..%2Fsecret", "%2e%2e%2fsecret", "%00"])
async def test_a_file_that_is_not_there(tmp_path, name) -> None:
    (tmp_path.parent / "secret").write_text("no")
    async with client_of(BoundedFolder(tmp_path, 1000)) as client:
        answer = await client.get(f"/rollouts/{name}")
    assert answer.status_code == 404
    assert answer.text != "no"


class FailingStore:
    def names(self):
        raise PermissionError(13, "Permission denied")

    def read(self, name):
        raise PermissionError(13, f"Permission denied: {name}")


async def test_a_store_that_fails_is_unavailable_and_says_why() -> None:
    async with client_of(FailingStore()) as client:
        for path in ("/rollouts", "/rollouts/000012-1.jsonl.zst"):
            answer = await client.get(path)
            assert (answer.status_code, "Permission denied" in answer.json()["error"]) == (503, True)


@pytest.mark.parametrize(
    ("asked", "status", "sent", "range_sent"),
    [
        ("bytes=0-", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=3-4", 206, b"34", "bytes 3-4/10"),
        ("bytes=3-99", 206, b"3456789", "bytes 3-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=99-100", 416, None, "bytes */10"),
        ("bytes=4-3", 200, b"0123456789", None),
        ("bytes=-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("lines=1-", 200, b"0123456789", None),
    ],
)
async def test_a_reader_gets_the_part_that_it_lacks(tmp_path, asked, status, sent, range_sent) -> None:
    """What RFC 9110 does not ask servers for gets the whole file."""
    folder = BoundedFolder(tmp_path, 1000)
    folder.append(StepFile(1, 1), b"0123456789")
    async with client_of(folder) as client:
        answer = await client.get("/rollouts/000001-1.jsonl.zst", headers={"Range": asked})
    assert (answer.status_code, answer.headers.get("content-range")) == (status, range_sent)
    if sent is None:
        assert answer.json() == {"error": f"000001-1.jsonl.zst has 10 bytes, and '{asked}' begins after them"}
    else:
        assert (answer.content, answer.headers["accept-ranges"]) == (sent, "bytes")
        assert answer.headers["content-type"] == "application/zstd"


def test_a_folder_of_a_claim(tmp_path: Path) -> None:
    (tmp_path / "000001-1.jsonl.zst").write_bytes(b"abc")
    store = kept_rollouts(load_settings("trainer", {"RL_ROLLOUTS_DIR": str(tmp_path)}))
    assert isinstance(store, BoundedFolder)
    assert store.names() == {"000001-1.jsonl.zst": 3}


def test_a_bucket_comes_before_the_trainers_own_folder(tmp_path: Path) -> None:
    variables = {"RL_ROLLOUTS_DIR": str(tmp_path), "RL_ROLLOUTS_URL": "s3://rollouts/team-a/sorting-1"}
    assert type(kept_rollouts(load_settings("trainer", variables))).__name__ == "BucketStore"


def test_neither() -> None:
    with pytest.raises(ConfigError, match="RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL must say where the rollouts are"):
        kept_rollouts(load_settings("trainer", {}))
