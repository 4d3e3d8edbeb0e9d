"""Where a real trainer keeps rollouts for good: a bucket of a server that is not ours, and places that fail."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.integration.training.conftest import TrainingHalf, eventually
from tests.ports import free_port
from tests.unit.tinker_atropos.rollout_files.s3_server import running_s3_server

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "s3cr3t-s3cr3t"}
URL = "s3://rollouts/team-a/sorting-1"


@pytest.fixture
def s3(process: None) -> Iterator[str]:
    with running_s3_server("rollouts") as url:
        yield url


async def test_a_bucket_has_all_of_it_and_is_read_without_the_trainer(
    half: TrainingHalf, scripted_environment, s3: str, tmp_path: Path
) -> None:
    bucket = {"RL_ROLLOUTS_URL": URL, "AWS_ENDPOINT_URL": s3, **KEYS}
    folder = tmp_path / "rollouts"
    await half.start_api()
    trainer = await half.start_trainer(half.write_config(), **bucket, RL_ROLLOUTS_DIR=str(folder))
    await half.ready(trainer)
    async with scripted_environment():
        assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "succeeded"
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"metrics-1.jsonl.zst", *(f"{step:06d}-1.jsonl.zst" for step in (1, 2, 3))} <= set(written)

    server = await half.start("rollouts", **bucket)
    await eventually("the rollouts are served", lambda: _answers(half.client, f"{server.ops_url}/healthz"))
    listed = (await half.client.get(f"{server.ops_url}/rollouts")).json()
    assert {each["name"]: each["bytes"] for each in listed["files"]} == {n: len(c) for n, c in written.items()}
    for name, content in written.items():
        assert (await half.client.get(f"{server.ops_url}/rollouts/{name}")).content == content
    server.stop()
    assert await server.exit_code() == 0, server.log


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    return (await client.get(url)).status_code == 200


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (
            {"RL_ROLLOUTS_URL": URL, "AWS_ENDPOINT_URL": "http://127.0.0.1:{port}", **KEYS},
            r"was not copied: cannot put \S+ in bucket rollouts of \S+: Connection refused",
        ),
        (
            {"RL_ROLLOUTS_URL": URL, "RL_ROLLOUTS_SECRET": "store"},
            r"was not copied: cannot put \S+ in bucket rollouts: Secret store does not exist or has no AWS_ACCESS",
        ),
        ({"RL_ROLLOUTS_DIR": "/dev/null/rollouts"}, "were not kept: Not a directory"),
    ],
    ids=["nobody listens", "no Secret", "no folder"],
)
async def test_a_place_that_fails_is_a_warning(
    half: TrainingHalf, scripted_environment, place: dict[str, str], complaint: str
) -> None:
    env_vars = {name: value.format(port=free_port()) for name, value in place.items()}
    await half.start_api()
    trainer = await half.start_trainer(half.write_config(env={"total_steps": 6}), **env_vars)
    await half.ready(trainer)
    async with scripted_environment():

        async def told() -> bool:
            return bool(re.search(complaint, str((await half.status(trainer)).get("warnings"))))

        await eventually("the status warns", told)
        assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "succeeded"
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in trainer.log
