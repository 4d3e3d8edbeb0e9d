"""The best weights at a real Tinker service: saved when an evaluation is due, kept while later ones are deleted."""

import pytest
from tests.integration.training.conftest import eventually

HIGH, LOW = 0.9, 0.6


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer")
async def test_the_best_weights_outlive_those_that_came_after(half, scripted_environment, tinker_service) -> None:
    """Step 2 is evaluated best, step 4 without a result, and the last one, step 6, worse."""
    config = half.write_config(
        env={"total_steps": 6, "steps_per_eval": 2},
        tinker={"keep_checkpoints": 1, "save_checkpoint_interval": 100},
    )
    trainer = await half.ready_trainer(config)
    environment = scripted_environment(lingers=True)
    await environment.report(step=2, eval__percent_correct=HIGH)

    async def known() -> bool:
        status = await half.status(trainer)
        return bool(status["metrics"].get("heldOut", {}).get("step") == 2)

    await eventually("the trainer knows the result of step 2", known)  # six steps may be faster than the relay
    async with environment:
        await half.says(trainer, "the environment evaluates the final weights")
        begun = await half.client.post(f"{half.env_vars['RL_INFERENCE_URL']}/rl/evaluation", json={"due_step": 6})
        assert begun.json() == {"step": 6}
        await environment.report(step=6, eval__percent_correct=LOW)
        environment.lease = {**environment.lease, "state": "done"}
        assert await trainer.exit_code(60) == 0, trainer.log

    result = half.result
    best = result["best"]
    assert (best["step"], best["heldOut"]["value"], result["metrics"]["heldOut"]["value"]) == (2, HIGH, LOW)
    url = f"{tinker_service.url}/api/v1/training_runs/{result['trainingRunId']}/checkpoints"
    listed = (await half.client.get(url, headers={"X-API-Key": tinker_service.key})).json()["checkpoints"]
    assert {checkpoint["tinker_path"]: checkpoint["expires_at"] for checkpoint in listed} == dict.fromkeys(
        (best["statePath"], best["samplerPath"], result["statePath"], result["samplerPath"])
    )
