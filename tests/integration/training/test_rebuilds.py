"""What happens while training is reopened, and what the trajectory API knows of it, with real processes."""

from typing import Any

import pytest
from tests.integration.training.faults import Fault, FaultProxy

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer", "tinker-atropos/src/tinker_atropos/trajectory_api"
)

SERVICE = "/api/v1"
STEPS = 5
BATCH = 8


def on(path: str, kind: Any, **options: Any) -> Fault:
    return Fault(kind, f"POST {SERVICE}/{path}$", **options)


async def books_of(half) -> dict[str, Any]:
    books = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/books")).json()["rollouts"]
    held = sum(books[state] for state in ("buffered", "queued", "delivered", "trained"))
    assert books["received"] == held + sum(books["dropped"].values())
    return books


async def test_a_backend_lost_during_the_final_evaluation(half, scripted_environment, tinker_service) -> None:
    """The final weights are reopened, the waiting sample is answered from them, and the run succeeds."""
    config = half.write_config(env={"total_steps": 2})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        async with scripted_environment(lingers=True) as environment:
            await half.says(trainer, "the environment evaluates the final weights")
            proxy.faults = [on("asample", "answer", status=404)]
            body = {"text": "sort", "sampling_params": {"max_new_tokens": 2}}
            answer = await half.client.post(f"{half.env_vars['RL_INFERENCE_URL']}/generate", json=body)
            assert answer.status_code == 200, answer.text
            assert "continuing after step 2" in trainer.log
            environment.lease = {**environment.lease, "state": "done"}
            assert await trainer.exit_code() == 0, trainer.log
    assert half.has_succeeded(2), half.result
    assert half.result["samplerPath"]
    assert (await books_of(half))["trained"] == 2 * BATCH


@nightly
async def test_final_weights_that_cannot_be_reopened_are_still_a_success(
    half, scripted_environment, tinker_service
) -> None:
    config = half.write_config(env={"total_steps": 2}, tinker={"backend_deadline_seconds": 5})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        async with scripted_environment(lingers=True):
            await half.says(trainer, "the environment evaluates the final weights")
            proxy.faults = [
                on("asample", "answer", status=404, times=None),
                on("load_weights", "answer", status=404, times=None),
            ]
            await half.client.post(f"{half.env_vars['RL_INFERENCE_URL']}/generate", json={"text": "sort"})
            assert await trainer.exit_code() == 0, trainer.log
    assert "the final evaluation is lost" in trainer.log
    assert half.result["outcome"] == "succeeded"
    assert half.result["samplerPath"]


@pytest.mark.parametrize(("interval", "end"), [(1, (0, "stopped")), pytest.param(2, (4, "failed"), marks=nightly)])
async def test_sigterm_while_training_is_reopened(half, scripted_environment, tinker_service, interval, end) -> None:
    """A save is kept forever, whether or not a later step is lost."""
    config = half.write_config(env={"total_steps": 50}, tinker={"save_checkpoint_interval": interval})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        proxy.faults = [
            on("forward_backward", "answer", status=422, skip=3),
            on("load_weights", "answer", status=500, times=None),
        ]
        async with scripted_environment():
            await half.says(trainer, "the backend was lost after step 3")
            assert half.result["checkpoint"]["expiresAt"]
            trainer.stop()
            assert await trainer.exit_code(25) == end[0], trainer.log
    result = half.result
    assert result["outcome"] == end[1]
    assert result["stepsTrained"] == 3 - 3 % interval
    assert result["statePath"].endswith(f"step-{result['stepsTrained']:06d}")
    assert result["checkpoint"].get("expiresAt") is None


@nightly
async def test_a_checkpoint_that_is_lost_with_the_backend(half, scripted_environment, tinker_service) -> None:
    """The newest two are gone. The one before them is there, but nobody asked for going back to it."""
    config = half.write_config(env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": 1})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        proxy.faults = [
            on("forward_backward", "answer", status=422, skip=4),
            on("load_weights", "answer", status=404, times=2),
        ]
        async with scripted_environment():
            assert await trainer.exit_code() == 1, trainer.log
    result = half.result
    assert result["error"]["class"] == "checkpoint"
    assert "neither the checkpoint after step 4" in result["error"]["message"]
    assert "the newest one, after step 3" in result["error"]["message"]
    assert result["stepsTrained"] == 4, "what is recorded stays"


@nightly
async def test_a_run_without_a_name_continues_from_its_own_checkpoint(
    half, scripted_environment, tinker_service
) -> None:
    config = half.write_config(env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": 2})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, RL_RUN_UID="")
        await half.ready(trainer)
        proxy.faults = [on("forward_backward", "answer", status=422, skip=3)]
        async with scripted_environment():
            assert await trainer.exit_code() == 0, trainer.log
    assert "continuing after step 2" in trainer.log
    assert (await books_of(half))["dropped"] == {}


async def test_an_api_that_returns_with_an_empty_journal(half, scripted_environment) -> None:
    """Its contents can no longer be trusted: the trainer saves, and says so."""
    config = half.write_config(env={"total_steps": 50})
    api = await half.start_api()
    trainer = await half.start_trainer(config)
    await half.ready(trainer)
    async with scripted_environment():
        await half.reached(trainer, 2)
        await half.stop_api(api)
        await half.start_api()
        assert await trainer.exit_code() == 1, trainer.log
    result = half.result
    assert result["error"]["class"] == "internal"
    assert "came back with an empty journal" in result["error"]["message"]
    assert result["stepsTrained"] >= 2
    assert result["statePath"].endswith(f"step-{result['stepsTrained']:06d}")
    assert result["checkpoint"].get("expiresAt") is None
