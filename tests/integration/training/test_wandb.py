"""A real run and its W&B run: what the server received, and that the console agrees."""

import json
from collections.abc import AsyncIterator

import pytest
from tests.wandb_server import WandbServer, running_wandb_server

RUN_ID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
async def wandb_server() -> AsyncIterator[WandbServer]:
    async with running_wandb_server() as server:
        yield server


async def test_a_run_is_one_wandb_run_with_tables_and_a_summary(half, scripted_environment, wandb_server) -> None:
    env_vars = {
        "WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": wandb_server.url, "WANDB_DIR": str(half.folder),
        "RL_WANDB_RUN_ID": RUN_ID, "RL_WANDB_CLOSE_SECONDS": "60", "RL_LOG_FORMAT": "json",
    }  # fmt: skip
    await half.start_api()
    config = half.write_config(tinker={"wandb_project": "rl", "wandb_samples_interval": 2})
    trainer = await half.start_trainer(config, **env_vars)
    await half.ready(trainer)
    async with scripted_environment():
        assert await trainer.exit_code() == 0, trainer.log
    run = wandb_server.runs[RUN_ID]

    assert [step for step, _ in run.points("train/loss")] == [1, 2, 3]
    ((step, table),) = run.points("samples")
    rows = json.loads(wandb_server.files[table["path"]])["data"]
    assert step == 2
    assert {row[0] for row in rows} == {2}
    assert all("sort" in row[1] for row in rows), rows
    assert run.summary["result/outcome"] == "succeeded"
    assert run.summary["result/samplerPath"] == half.result["samplerPath"]
    assert run.exit_codes == [0]

    lines = [json.loads(line) for line in trainer.log.splitlines()]
    steps = [line["figures"] for line in lines if "figures" in line]
    assert [figures["step"] for figures in steps] == [1, 2, 3]
    assert [figures["train/loss"] for figures in steps] == [loss for _, loss in run.points("train/loss")]
