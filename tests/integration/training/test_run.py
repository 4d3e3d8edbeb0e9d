"""The training half, started by hand: every process real, and in the first test started as a container starts it."""

import httpx
from tests.integration.training.kept_rollouts import check_kept_rollouts

from rl_contract.bundled import BUNDLED
from tinker_atropos.trainer.update.optimizer import automatic_learning_rate


async def test_real_starts_of_four_programs_train_and_end_by_themselves(half, tinker_service) -> None:
    """`api`, `trainer` and `environment` against the Tinker service, from nothing to evaluated weights."""
    half.real_starts = True
    config = half.write_config(env={"group_size": 8, "batch_size": 16, "eval_items": 100, "eval_greedy": True})
    api = await half.start_api()
    trainer = await half.start_trainer(config, RL_ROLLOUTS_DIR=str(half.folder / "rollouts"))
    environment = await half.start("environment", "sort_digits", "serve", "--config", str(config))

    await half.ends_well(trainer, environment)
    totals = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/books")).json()["totals"]
    assert 0 < totals["trained_rollouts"] <= totals["sampled_rollouts"]
    assert 0 < totals["trained_tokens"] <= totals["sampled_tokens"]
    api.stop()
    assert await api.exit_code() == 0

    result = half.result
    assert result["outcome"] == "succeeded"
    assert result["stepsTrained"] == result["totalSteps"] == 3
    assert result["samplerPath"].startswith("tinker://")
    assert (result["items"]["trained"], result["items"]["epochSize"]) == (3 * 2, 2_000)
    metrics = result["metrics"]
    assert 0.3 < metrics["baseline"]["value"] < 0.7
    assert metrics["heldOut"]["low"] < metrics["heldOut"]["value"] < metrics["heldOut"]["high"]
    assert metrics["heldOut"]["samples"] == metrics["baseline"]["samples"] > 100
    assert await checkpoints(tinker_service, result["trainingRunId"]) == {result["statePath"], result["samplerPath"]}
    lines = [line for line in trainer.log.splitlines() if " step " in line and "held-out" not in line]
    assert len(lines) == 1 + 3, trainer.log  # "ready … step 0", and one line per step
    check_kept_rollouts(half.folder / "rollouts", 3, {0: metrics["baseline"]["value"], 3: metrics["heldOut"]["value"]})


async def test_only_fresh_rollouts_neither_stall_a_run_nor_waste_it(half) -> None:
    """`max_staleness` 0 with an environment that would run three batches ahead: it learns how much is wanted."""
    config = half.write_config(
        env={"total_steps": 4, "group_size": 8, "batch_size": 16, "max_batches_offpolicy": 3, "eval_items": 8},
        tinker={"max_staleness": 0},
    )
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await half.start("environment", "sort_digits", "serve", "--config", str(config))
    await half.ends_well(trainer, environment)
    assert half.result["stepsTrained"] == 4
    lines = [line for line in trainer.log.splitlines() if "/4  " in line]
    assert len(lines) == 4
    assert all("staleness 0.0" in line for line in lines), trainer.log
    books = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/books")).json()["rollouts"]
    assert books["trained"] == 64
    assert books["received"] <= 64 + 16, "at most a batch is made in vain"


async def test_weights_change_and_the_sampler_follows_the_trainer(half, scripted_environment) -> None:
    """Tokens sampled from the current weights have the logprobs that training computes for them. The trainer has a
    token, as on a cluster.
    """
    half.client.headers["X-RL-Ops-Token"] = "t0ken"
    config = half.write_config(env={"total_steps": 6}, tinker={"learning_rate": "auto"})
    trainer = await half.ready_trainer(config, RL_OPS_TOKEN="t0ken")
    async with scripted_environment():
        await half.reached(trainer, 5)
        history = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
        losses = (await half.client.get(f"{trainer.ops_url}/history?figures=loss")).json()["points"]
        assert losses[: len(history)] == [{"step": point["step"], "loss": point["loss"]} for point in history]
        status = await half.status(trainer)
        assert status["metrics"]["learningRate"] == automatic_learning_rate(BUNDLED, BUNDLED)
        kept = (await half.client.get(f"{trainer.ops_url}/rollouts")).json()
        first = await half.client.get(f"{trainer.ops_url}/rollouts/000001-1.jsonl.zst")
        for path in ("rollouts", "rollouts/000001-1.jsonl.zst", "history", "status"):
            refused = await half.client.get(f"{trainer.ops_url}/{path}", headers={"X-RL-Ops-Token": ""})
            assert refused.status_code == 401, path
        shown = await half.client.get(f"{trainer.ops_url}/metrics", headers={"X-RL-Ops-Token": ""})
        assert shown.status_code == 200
        assert "tinker://" not in shown.text
        assert await trainer.exit_code() == 0, trainer.log
    assert (kept["every"], kept["note"]) == (1, None)
    sizes = {file["name"]: file["bytes"] for file in kept["files"]}
    assert sizes["000001-1.jsonl.zst"] == len(first.content)
    gaps = [point["logprobs/gap"] for point in history if "logprobs/gap" in point]
    assert gaps
    assert max(gaps) <= 1e-5
    assert all(point["staleness/unknown"] == 0 for point in history)
    means = [point["logprobs/mean_training"] for point in history]
    assert len(set(means)) == len(means)
    assert status["phase"] in ("sampling", "training", "saving", "done")
    assert status["totalSteps"] == 6
    assert status["secondsPerStep"] > 0


async def test_an_environment_that_drops_logprobs_is_trained_from_the_ledger(half, scripted_environment) -> None:
    trainer = await half.ready_trainer(half.write_config())
    async with scripted_environment(with_logprobs=False):
        await half.reached(trainer, 2)
        points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
        assert await trainer.exit_code() == 0, trainer.log
    assert all(point["batch/dropped_no_logprobs"] == 0 and point["batch/trained_rollouts"] == 8 for point in points)


async def test_a_batch_of_equal_scores_counts_as_a_step(half, scripted_environment) -> None:
    trainer = await half.ready_trainer(half.write_config())
    async with scripted_environment(equal_scores=True):
        await half.reached(trainer, 2)
        points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
        assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "succeeded"
    assert [point["batch/trained_rollouts"] for point in points[:2]] == [0, 0]
    assert "train/loss" not in points[0]


async def test_ops_port_and_result_at_readiness(half) -> None:
    await half.start_api()
    trainer = await half.start_trainer(half.write_config())

    async def unready() -> httpx.Response:
        return await half.client.get(f"{trainer.ops_url}/healthz")

    await half.ready(trainer)
    assert (await unready()).text == "ok"
    assert half.result["outcome"] == "running"
    assert half.result["stepsTrained"] == 0
    assert half.result["trainingRunId"]
    figures = (await half.client.get(f"{trainer.ops_url}/metrics")).text
    assert "rl_trainer_total_steps 3.0" in figures
    registered = (await half.client.get(f"{half.env_vars['RL_API_URL']}/info")).json()
    assert registered == {"batch_size": 8, "max_token_len": 512}


async def test_a_run_starts_at_step_0_from_the_weights_of_another(half, scripted_environment) -> None:
    api = await half.start_api()
    first = await half.start_trainer(half.write_config(env={"total_steps": 1}))
    await half.ready(first)
    async with scripted_environment():
        assert await first.exit_code() == 0, first.log
    await half.stop_api(api)
    await half.start_api()
    state = half.result["statePath"]
    second = await half.start_trainer(half.write_config(), RL_START_FROM=state, RL_RUN_UID="another")
    await half.ready(second)
    assert half.result["stepsTrained"] == 0
    assert half.result.get("statePath") is None
    assert f"from the weights of {state}" in second.log
    second.stop()
    assert await second.exit_code() == 0


async def checkpoints(tinker_service, training_run_id: str) -> set[str]:
    async with httpx.AsyncClient(base_url=tinker_service.url, trust_env=False, timeout=60) as client:
        response = await client.get(
            f"/api/v1/training_runs/{training_run_id}/checkpoints", headers={"X-API-Key": tinker_service.key}
        )
    return {checkpoint["tinker_path"] for checkpoint in response.json()["checkpoints"]}


async def test_wandb_offline_works_and_is_in_the_status(half, scripted_environment, eventually) -> None:
    await half.start_api()
    trainer = await half.start_trainer(
        half.write_config(), WANDB_MODE="offline", WANDB_DIR=str(half.folder), RL_WANDB_RUN_ID="run-1"
    )
    await half.ready(trainer)

    async def offline() -> bool:
        wandb = (await half.status(trainer))["wandb"]
        return wandb["state"].startswith("offline") and (wandb.get("url"), wandb["runId"]) == (None, "run-1")

    await eventually("W&B has begun", offline)
    async with scripted_environment():
        assert await trainer.exit_code() == 0, trainer.log
    assert list(half.folder.glob("wandb/offline-run-*/run-run-1.wandb"))
    assert half.result["outcome"] == "succeeded"
