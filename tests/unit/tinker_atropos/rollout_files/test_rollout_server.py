"""The program that serves what a trainer kept, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.rollout_folder import RolloutFolder
from tinker_atropos.rollout_files.rollout_server import QuietStore, interval, rollout_app, serve_rollouts
from tinker_atropos.serving import bind, serve
from tinker_atropos.settings import load_settings


def write(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"{step:06d}-1.jsonl.zst").write_bytes(b"x" * step)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = rollout_app(QuietStore(RolloutFolder(tmp_path, 0)))
    async with (
        serve(app, bind("127.0.0.1", 0, "the port")) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client


async def test_the_routes_of_a_trainer(client: httpx.AsyncClient, tmp_path: Path) -> None:
    write(tmp_path, 0, 4, 8)
    listed = await client.get("/rollouts")
    assert listed.json() == {
        "files": [{"name": f"{step:06d}-1.jsonl.zst", "bytes": step} for step in (0, 4, 8)],
        "every": 4,
        "note": None,
    }
    assert (await client.get("/rollouts/000004-1.jsonl.zst")).content == b"xxxx"
    assert (await client.get("/rollouts/000005-1.jsonl.zst")).status_code == 404
    assert (await client.get("/rollouts/..%2Fpasswd")).status_code == 404
    assert (await client.get("/healthz")).text == "ok"


@pytest.mark.parametrize(
    ("steps", "every"), [((), 1), ((8,), 1), ((0, 8), 1), ((0, 1, 2), 1), ((0, 6, 8), 2), ((16, 32, 48), 16)]
)
def test_the_interval_is_what_the_names_show(steps: tuple[int, ...], every: int) -> None:
    assert interval({f"{step:06d}-1.jsonl.zst": 1 for step in steps}) == every


def test_each_question_begins_its_rest_again(tmp_path: Path) -> None:
    write(tmp_path, 1)
    now = 100.0
    store = QuietStore(RolloutFolder(tmp_path, 0), lambda: now)
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
