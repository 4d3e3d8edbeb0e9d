"""A run that ends before its last step, because an evaluation was good enough."""

import signal

from tests.integration.training.conftest import eventually

GOOD, GOAL = 0.9, 0.8


async def test_a_run_ends_at_its_goal_and_an_attempt_after_it_trains_nothing(half, scripted_environment) -> None:
    """The first trainer is killed while the final weights are evaluated."""
    config = half.write_config(
        env={"total_steps": 100_000, "steps_per_eval": 2},
        tinker={"early_stopping": {"stop_at": GOAL}, "save_checkpoint_interval": 100_000, "keep_checkpoints": 3},
    )
    api = await half.start_api()
    first = await half.start_trainer(config)
    await half.ready(first)
    environment = scripted_environment(lingers=True)
    async with environment:
        await half.reached(first, 2, saved=True)
        await environment.report(step=2, eval__percent_correct=GOOD)
        await half.says(first, "the environment evaluates the final weights")
        status = await half.status(first)
        assert (status["step"], status["totalSteps"], status["phase"]) == (half.result["stepsTrained"], 100_000, "done")
        first.stop(signal.SIGKILL)
        await first.exit_code()
    reason = f"held-out {GOOD} of step 2 reached trainer.early_stopping.stop_at {GOAL}"
    trained = half.result["stepsTrained"]
    assert (half.result["outcome"], half.result["stoppedEarly"]) == ("running", reason)
    assert half.result["checkpoint"].get("expiresAt") is None, first.log
    await half.stop_api(api)

    await half.start_api()
    second = await half.start_trainer(config, RL_ATTEMPT="2")
    environment = scripted_environment(lingers=True)
    async with environment:
        await half.says(second, "the environment evaluates the final weights")

        async def over() -> bool:
            answer = await half.client.get(f"{half.env_vars['RL_API_URL']}/status")
            return bool(answer.json()["current_step"] == 100_001)

        await eventually("environments are told that the run is over", over)
        begun = await half.client.post(f"{half.env_vars['RL_INFERENCE_URL']}/rl/evaluation", json={"due_step": trained})
        assert begun.json() == {"step": trained}
        await environment.report(step=trained, eval__percent_correct=GOOD)
        environment.lease = {**environment.lease, "state": "done"}
        assert await second.exit_code(60) == 0, second.log
    result = half.result
    assert (result["outcome"], result["stepsTrained"], result["fromStep"]) == ("succeeded", trained, trained)
    assert (result["stoppedEarly"], result["totalSteps"]) == (reason, 100_000)
    assert result["samplerPath"]
