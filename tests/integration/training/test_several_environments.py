"""A run whose environments are several replaceable processes, as in separate pods; all are real."""

import signal

import pytest
from tests.integration.training.kept_rollouts import trained_items

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer",
    "tinker-atropos/src/tinker_atropos/trajectory_api",
    "tinker-atropos/src/tinker_atropos/environments/runner",
)

pytestmark = pytest.mark.timeout(600)  # several processes, each with a start of seconds on a busy machine
STEPS = 40
START_SECONDS = 200.0
"""Longest start of a process; ten seconds, on a machine that is not busy."""


class Run:
    """An api, a trainer, and environments by their index."""

    def __init__(self, half, eventually, **env) -> None:
        self._half = half
        self._eventually = eventually
        env = {"group_size": 4, "batch_size": 8, "eval_items": 10, "max_batches_offpolicy": 2, **env}
        self._config = half.write_config(env=env, tinker={"save_checkpoint_interval": 1})

    async def start(self, grace: int = 100):
        """The api and its trainer; returns the trainer, which is ready."""
        rollouts = {"RL_ROLLOUTS_DIR": str(self._half.folder / "rollouts")}
        self._half.env_vars |= {"RL_REMOTE_ENVIRONMENTS": "1", "RL_ENVIRONMENT_GRACE": str(grace), **rollouts}
        await self._half.start_api()
        trainer = await self._half.start_trainer(self._config)

        async def ready() -> bool:
            assert trainer.process.returncode is None, trainer.log
            return (await self._half.client.get(f"{trainer.ops_url}/healthz")).is_success

        await self._eventually("the trainer is ready", ready, START_SECONDS)
        return trainer

    async def environment(self, index: int | None):
        """None: as in the run's own pod, where it is not replaced."""
        arguments = ("environment", "sort_digits", "serve", "--config", str(self._config))
        return await self._half.start(*arguments, RL_ENVIRONMENT_INDEX="" if index is None else str(index))

    async def api(self):
        """The api's own status."""
        return (await self._half.client.get(f"{self._half.started[0].ops_url}/status")).json()

    async def makes_groups(self, environment) -> None:
        async def accepted() -> bool:
            assert environment.process.returncode is None, environment.log
            return (await self._half.status(environment))["groupsAccepted"] > 0

        await self._eventually("an environment's group is accepted", accepted, START_SECONDS)

    async def side_is(self, state: str) -> None:
        async def seen() -> bool:
            return (await self.api())["leases"]["environment"]["state"] == state

        await self._eventually(f"the environments' side is {state}", seen)


@pytest.fixture
def several(half, eventually):
    def make(**env) -> Run:
        return Run(half, eventually, **env)

    return make


@nightly
async def test_one_of_two_is_killed_and_replaced_and_the_run_ends_well(half, several) -> None:
    run = several(total_steps=STEPS)
    trainer = await run.start()
    first, second = await run.environment(0), await run.environment(1)
    await run.makes_groups(first)
    await run.makes_groups(second)
    second.stop(signal.SIGKILL)
    await second.exit_code()
    first.stop(signal.SIGSTOP)  # or the run might end before the replacement starts
    replacement = await run.environment(1)
    await run.makes_groups(replacement)
    first.stop(signal.SIGCONT)
    names = [environment["name"] for environment in (await run.api())["environments"]]
    assert sorted(names) == ["sort_digits_0", "sort_digits_1"]

    await half.ends_well(trainer, first, replacement, seconds=300)
    assert (half.result["outcome"], half.result["stepsTrained"]) == ("succeeded", STEPS)
    assert half.result["metrics"]["baseline"]["samples"] == half.result["metrics"]["heldOut"]["samples"] == 20
    told = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/books")).json()
    items, trained = told["items"], trained_items(half.folder, STEPS)
    assert (len(trained), len(set(trained))) == (STEPS * 2, STEPS * 2), "an item is trained twice"
    assert items["seen"] == items["trained"] + sum(items["dropped"].values()) + items["under_way"]
    assert (items["trained"], items["epoch"]) == (STEPS * 2, 0)
    books = told["rollouts"]
    waiting = books["buffered"] + books["queued"] + books["delivered"]
    assert books["received"] == books["trained"] + waiting + sum(books["dropped"].values())
    assert books["trained"] == STEPS * 8
    assert "evaluation at step 0" in first.log
    assert "evaluation at step" not in replacement.log


@nightly
async def test_a_replaced_evaluator_evaluates_the_end_and_not_the_beginning_again(half, several) -> None:
    run = several(total_steps=30)
    trainer = await run.start()
    first = await run.environment(0)
    await run.makes_groups(first)
    first.stop(signal.SIGKILL)
    await first.exit_code()
    await run.side_is("away")
    assert "no environment has been live for" in (await run.api())["leases"]["environment"]["reason"]
    second = await run.environment(0)
    await half.ends_well(trainer, second, seconds=300)
    assert first.log.count("evaluation at step 0") == 1
    assert "evaluation at step 0" not in second.log
    assert "evaluation at step 30" in second.log
    assert half.result["metrics"]["baseline"]["samples"] == 20


@nightly
async def test_all_killed_for_longer_than_the_grace_ends_the_run_with_their_reason(half, several) -> None:
    run = several(total_steps=5_000)
    trainer = await run.start(grace=5)
    environments = [await run.environment(0), await run.environment(1)]
    for environment in environments:
        await run.makes_groups(environment)
    for environment in environments:
        environment.stop(signal.SIGKILL)
    await run.side_is("away")
    assert await trainer.exit_code(120) == 1, trainer.log
    assert half.result["outcome"] == "failed"
    assert half.result["error"] == {
        "class": "silence",
        "message": "the environment fell silent: no heartbeat from the environment for more than 15 seconds",
    }
    assert half.result["statePath"] is not None, "what was trained is kept"


@nightly
async def test_the_environment_in_the_runs_pod_ends_the_attempt_though_another_works(half, several) -> None:
    run = several(total_steps=5_000)
    trainer = await run.start()
    inside, other = await run.environment(None), await run.environment(1)
    await run.makes_groups(inside)
    await run.makes_groups(other)
    inside.stop(signal.SIGKILL)
    assert await trainer.exit_code(120) == 1, trainer.log
    assert half.result["error"]["class"] == "silence"
    assert half.result["statePath"] is not None, "what was trained is kept"
    assert await other.exit_code(60) == 0, other.log
