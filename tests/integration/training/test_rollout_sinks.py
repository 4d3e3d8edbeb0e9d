"""Where a real trainer keeps rollouts for good: a bucket of a server that is not ours, and places that fail."""

import re
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from tests.integration.training.conftest import TrainingHalf, eventually
from tests.ports import free_port

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA0123456789", "AWS_SECRET_ACCESS_KEY": "s3cr3t-s3cr3t"}
URL = "s3://rollouts/team-a/sorting-1"


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/rollout_files")
async def test_a_bucket_has_all_attempts_and_is_read_with_the_trainer_and_without_it(
    half: TrainingHalf, scripted_environment, s3: str, tmp_path: Path
) -> None:
    """The first attempt's pod is gone with its folder; its files are in the bucket."""
    earlier = {"metrics-1.jsonl.zst": b"curves", "000001-1.jsonl.zst": b"one", "000002-1.jsonl.zst": b"two"}
    for name, content in earlier.items():
        address, kind = f"{s3}/{URL.removeprefix('s3://')}/{name}", {"Content-Type": "application/zstd"}
        (await half.client.put(address, content=content, headers=kind)).raise_for_status()
    bucket = {"RL_ROLLOUTS_URL": URL, "AWS_ENDPOINT_URL": s3, **KEYS}
    folder = tmp_path / "rollouts"
    trainer = await half.ready_trainer(half.write_config(), **bucket, RL_ROLLOUTS_DIR=str(folder), RL_ATTEMPT="2")
    await eventually("it knows what was left", lambda: _serves(half.client, trainer.ops_url, earlier))
    async with scripted_environment():
        assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "succeeded"
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"metrics-2.jsonl.zst", *(f"{step:06d}-2.jsonl.zst" for step in (1, 2, 3))} <= set(written)

    server = await half.start("rollouts", **bucket)
    await eventually("the rollouts are served", lambda: _answers(half.client, f"{server.ops_url}/healthz"))
    assert await _serves(half.client, server.ops_url, earlier | written)
    server.stop()
    assert await server.exit_code() == 0, server.log


async def _serves(client: httpx.AsyncClient, url: str, files: Mapping[str, bytes]) -> bool:
    """Whether it lists just these files; if so, they must be what it sends."""
    listed = (await client.get(f"{url}/rollouts")).json()["files"]
    if {each["name"]: each["bytes"] for each in listed} != {name: len(content) for name, content in files.items()}:
        return False
    for name, content in files.items():
        assert (await client.get(f"{url}/rollouts/{name}")).content == content
    return True


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    return (await client.get(url)).status_code == 200


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (
            {"RL_ROLLOUTS_URL": URL, "AWS_ENDPOINT_URL": "http://127.0.0.1:{port}", **KEYS},
            r"was not copied: cannot list files in bucket rollouts of \S+: Connection refused",
        ),
        (
            {"RL_ROLLOUTS_URL": URL, "RL_ROLLOUTS_SECRET": "store"},
            r"was not copied: cannot list files in bucket rollouts: Secret store does not exist or has no AWS_ACCESS",
        ),
        ({"RL_ROLLOUTS_DIR": "/dev/null/rollouts"}, "were not kept: Not a directory"),
    ],
    ids=["nobody listens", "no Secret", "no folder"],
)
async def test_a_place_that_fails_is_a_warning(
    half: TrainingHalf, scripted_environment, place: dict[str, str], complaint: str
) -> None:
    env_vars = {name: value.format(port=free_port()) for name, value in place.items()}
    trainer = await half.ready_trainer(half.write_config(env={"total_steps": 6}), **env_vars)
    async with scripted_environment():

        async def told() -> bool:
            return bool(re.search(complaint, str((await half.status(trainer)).get("warnings"))))

        await eventually("the status warns", told)
        assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "succeeded"
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in trainer.log
