"""Faults inside of environments: they cost the rollouts that they hit, and the books say so. Every process is real."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from tests.integration.training.conftest import Container, TrainingHalf, eventually
from tests.ports import free_port

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/environments/adapters",
    "tinker-atropos/src/tinker_atropos/environments/runner",
    "tinker-atropos/src/tinker_atropos/trainer",
)

PROGRAMS = Path(__file__).parents[2] / "data" / "programs"
GROUP, BATCH = 8, 16
SIZES = {"group_size": GROUP, "batch_size": BATCH, "eval_items": 8}
COUNTDOWN = {
    **SIZES,
    "system_prompt": "",
    "max_token_length": 256,
    "ensure_scores_are_not_same": False,  # the bundled model never finds the answer; the grader pays 0.01 for any
}


async def assert_balanced(half: TrainingHalf, steps: int, failed: int = 0) -> None:
    """Of the newest api: each rollout that it received is trained, dropped for a reason, or waits. At least `failed`
    were sampled besides.
    """
    books = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/books")).json()
    for kept in (books["groups"], books["rollouts"]):
        waiting = sum(kept[state] for state in ("buffered", "queued", "delivered"))
        assert kept["received"] == kept["trained"] + waiting + sum(kept["dropped"].values()), books
    assert books["rollouts"]["trained"] == steps * BATCH, books
    assert books["totals"]["sampled_rollouts"] >= books["rollouts"]["received"] + failed, books


async def serve(half: TrainingHalf, name: str, config: Path, **env_vars: str) -> Container:
    return await half.start("environment", name, "serve", "--config", str(config), **env_vars)


async def failed_rollouts(half: TrainingHalf, environment: Container) -> dict[str, int]:
    async def some() -> dict[str, int]:
        assert environment.process.returncode is None, environment.log
        failed: dict[str, int] = (await half.status(environment))["rolloutsFailed"]
        return failed

    return await eventually("a rollout fails", some)


@pytest.fixture
async def start_server(half):
    """Starts the OpenEnv server on the port of the test; `mode` is one of its modes."""
    port, servers = free_port(), []

    async def start(mode: str) -> asyncio.subprocess.Process:
        env_vars = {"PORT": str(port)}
        servers.append(
            await asyncio.create_subprocess_exec(sys.executable, PROGRAMS / "openenv_server.py", mode, env=env_vars)
        )
        return servers[-1]

    half.env_vars["RL_OPENENV"] = json.dumps({"url": f"http://127.0.0.1:{port}", "maxSessions": 2 * GROUP})
    yield start
    for server in servers:
        if server.returncode is None:
            server.kill()
        await server.wait()


async def test_an_openenv_server_that_is_killed_between_two_steps(half, start_server) -> None:
    """It ends by SIGKILL when it is asked for its 40th step. Sessions that are open then are lost, and no others."""
    steps = 6
    config = half.write_config(
        env={**SIZES, "total_steps": steps, "steps_per_eval": 100, "system_prompt": "", "max_turns": 1}
    )
    first = await start_server("killed")
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await serve(half, "openenv", config)
    assert await asyncio.wait_for(first.wait(), 90) == -signal.SIGKILL, environment.log
    failed = await failed_rollouts(half, environment)
    await start_server("plain")
    await half.ends_well(trainer, environment)
    assert list(failed) == ["transport"]
    assert failed["transport"] <= 2 * GROUP
    assert (half.result["outcome"], half.result["stepsTrained"]) == ("succeeded", steps)
    await assert_balanced(half, steps)


@nightly
async def test_a_killed_environment_continues_at_its_level_with_the_next_attempt(half) -> None:
    """It is killed while it makes groups. The trainer saves what was trained, and the level beside it."""
    levels = {"field": "max_numbers", "levels": [4, 5, 6], "raise_at": 0.005, "window": 32}
    env = {**COUNTDOWN, "steps_per_eval": 100, "curriculum": levels}
    config = half.write_config(env={**env, "total_steps": 1_000})
    api = await half.start_api()
    trainer = await half.start_trainer(config)
    killed = await serve(half, "reasoning-gym/countdown", config)
    await half.says(killed, "curriculum: level 1 of 2")

    async def known() -> bool:
        state = (await half.status(api))["leases"]["environment"].get("environment_state")
        return state is not None and json.loads(state)["level"] > 0

    await eventually("the api knows the level", known)
    killed.stop(signal.SIGKILL)
    assert await trainer.exit_code() == 1, trainer.log
    assert half.result["error"]["class"] == "silence", "who is to blame, the end of its container tells"
    trained = half.result["stepsTrained"]
    assert half.result["statePath"] is not None
    await assert_balanced(half, trained)
    await half.stop_api(api)

    steps = trained + 3
    config = half.write_config(env={**env, "total_steps": steps})
    await half.start_api()
    second = await half.start_trainer(config, RL_ATTEMPT="2")
    continued = await serve(half, "reasoning-gym/countdown", config)
    await half.ends_well(second, continued)
    assert "continuing with the environment's state" in continued.log
    assert "curriculum: level 1 of 2" not in continued.log, "it would have begun at level 0"
    assert (half.result["outcome"], half.result["stepsTrained"]) == ("succeeded", steps)
    await assert_balanced(half, steps - trained)


@nightly
async def test_a_grader_that_hangs_costs_the_rollout_that_it_grades(half) -> None:
    """One answer of sixteen is never graded; its worker is ended, and the rollout is made again."""
    steps = 3
    config = half.write_config(env={**COUNTDOWN, "total_steps": steps, "steps_per_eval": 100, "scoring_seconds": 1.0})
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await serve(half, str(PROGRAMS / "hanging_grader.py"), config)
    failed = await failed_rollouts(half, environment)
    await half.ends_well(trainer, environment)
    assert list(failed) == ["timeout"]
    assert "reasoning-gym took longer than 1 s to score an answer" in environment.log
    assert half.result["stepsTrained"] == steps
    await assert_balanced(half, steps, failed["timeout"])
