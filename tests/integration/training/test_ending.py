"""How attempts end: every case has its exit code, its result and its reason, and nothing hangs."""

import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.integration.training.faults import Fault, FaultProxy

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer")


async def test_sigterm_saves_the_progress_and_the_next_attempt_continues(half, scripted_environment) -> None:
    config = half.write_config(env={"total_steps": 8})
    api = await half.start_api()
    trainer = await half.start_trainer(config)
    await half.ready(trainer)
    async with scripted_environment() as environment:
        await half.reached(trainer, 2)
        asked = time.monotonic()
        trainer.stop()
        assert await trainer.exit_code(25) == 0, trainer.log
        assert time.monotonic() - asked < 25
        assert environment.peer["state"] in ("working", "done")
    stopped = half.result
    assert stopped["outcome"] == "stopped"
    assert stopped["stepsTrained"] >= 2
    assert stopped["statePath"].endswith(f"attempt-1-step-{stopped['stepsTrained']:06d}")
    await half.stop_api(api)

    second = await half.ready_trainer(config, RL_ATTEMPT="2")
    assert half.result["stepsTrained"] == stopped["stepsTrained"]
    assert half.result["statePath"] == stopped["statePath"]
    async with scripted_environment():
        assert await second.exit_code() == 0, second.log
    assert half.result["outcome"] == "succeeded"
    assert half.result["attempt"] == 2
    assert half.result["stepsTrained"] == 8
    assert half.result["trainingRunId"] != stopped["trainingRunId"]


async def test_sigterm_before_the_backend_answers(half) -> None:
    config = half.write_config()
    await half.start_api()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        trainer = await half.start_trainer(config, TINKER_BASE_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
        silent.settimeout(60)
        with silent.accept()[0]:
            trainer.stop()
            assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "stopped"
    assert half.result.get("statePath") is None


async def test_a_lost_environment_ends_the_run_with_its_reason_and_a_checkpoint(half, scripted_environment) -> None:
    config = half.write_config(env={"total_steps": 50})
    trainer = await half.ready_trainer(config)
    async with scripted_environment() as environment:
        await half.reached(trainer, 1)
        environment.lease = {"state": "failed", "reason": "ValueError: no such dataset", "ttl_seconds": 15}
        assert await trainer.exit_code() == 1, trainer.log
    result = half.result
    assert result["outcome"] == "failed"
    assert result["error"] == {
        "class": "environment",
        "message": "the environment failed: ValueError: no such dataset",
    }
    assert result["stepsTrained"] >= 1
    assert result["statePath"].endswith(f"step-{result['stepsTrained']:06d}")
    assert "error: the environment failed: ValueError: no such dataset" in trainer.log


async def test_a_wrong_key(half) -> None:
    await half.start_api()
    trainer = await half.start_trainer(half.write_config(), TINKER_API_KEY="tml-wrong")
    assert await trainer.exit_code() == 3, trainer.log
    assert half.result["error"]["class"] == "credentials"
    assert "TINKER_API_KEY" in half.result["error"]["message"]
    assert "tml-wrong" not in trainer.log + half.result_file.read_text()


async def test_no_key(half) -> None:
    await half.start_api()
    trainer = await half.start_trainer(half.write_config(), TINKER_API_KEY="", HOME=str(half.folder))
    assert await trainer.exit_code() == 3, trainer.log
    assert half.result["error"]["class"] == "credentials"


async def test_an_unreachable_backend(half) -> None:
    await half.start_api()
    config = half.write_config(tinker={"backend_deadline_seconds": 1})
    started = time.monotonic()
    trainer = await half.start_trainer(config, TINKER_BASE_URL="http://127.0.0.1:9")
    assert await trainer.exit_code() == 4, trainer.log
    assert time.monotonic() - started < 25
    assert half.result["error"]["class"] == "backend"
    assert "http://127.0.0.1:9" in half.result["error"]["message"]


async def test_a_backend_that_dies_while_training(
    half, scripted_environment, start_tinker_service, tmp_path_factory
) -> None:
    await half.start_api()
    with start_tinker_service(tmp_path_factory.mktemp("dying")) as service:
        config = half.write_config(
            env={"total_steps": 500}, tinker={"backend_deadline_seconds": 8, "save_checkpoint_interval": 1}
        )
        trainer = await half.start_trainer(config, **service.env_vars)
        await half.ready(trainer)
        async with scripted_environment():
            await half.reached(trainer, 1, saved=True)
            service.process.kill()
            assert await trainer.exit_code() == 4, trainer.log
    assert half.result["outcome"] == "failed"
    assert half.result["error"]["class"] == "backend"
    assert half.result["stepsTrained"] >= 1
    assert half.result["statePath"]


@nightly
async def test_a_backend_that_dies_while_idle(half, start_tinker_service, tmp_path_factory) -> None:
    """Without a step that fails, the next sample reveals it."""
    await half.start_api()
    with start_tinker_service(tmp_path_factory.mktemp("dying")) as service:
        trainer = await half.start_trainer(
            half.write_config(tinker={"backend_deadline_seconds": 8}), **service.env_vars
        )
        await half.ready(trainer)
        service.process.kill()
        answer = await half.client.post(f"{half.env_vars['RL_INFERENCE_URL']}/generate", json={"text": "sort"})
        assert answer.status_code == 503
        assert await trainer.exit_code() == 4, trainer.log


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"tinker": {"learning_rte": 0.1}}, "tinker.learning_rte is not a known field; did you mean 'learning_rate'?"),
        ({"tinker": {"learning_rate": "fast"}}, "tinker.learning_rate is 'fast'"),
        (
            {"env": {"batch_size": 9}},
            "env.batch_size is 9: a batch holds whole groups, and 9 rollouts cannot be divided into groups of 4",
        ),
        ({"env": {"tokenizer_name": "/no/such/folder"}}, "env.tokenizer_name is '/no/such/folder'"),
    ],
)
async def test_a_bad_config(half, sections, message) -> None:
    trainer = await half.start_trainer(half.write_config(**sections))
    assert await trainer.exit_code() == 2, trainer.log
    assert message in trainer.log
    assert half.result["error"]["class"] == "config"


async def test_a_model_that_the_backend_does_not_have(half) -> None:
    await half.start_api()
    path = half.write_config()
    path.write_text(path.read_text().replace("model_name: bundled", "model_name: Qwen/Qwen3-8B"))
    trainer = await half.start_trainer(path)
    assert await trainer.exit_code() == 2, trainer.log
    assert "Qwen/Qwen3-8B" in half.result["error"]["message"]


async def test_a_port_in_use(half) -> None:
    port = int(half.env_vars["RL_INFERENCE_URL"].rsplit(":", 1)[1])
    with socket.create_server(("127.0.0.1", port)):
        trainer = await half.start_trainer(half.write_config())
        assert await trainer.exit_code() == 1, trainer.log
    assert f"port {port} on 127.0.0.1 is in use; end its owner or set RL_INFERENCE_URL" in trainer.log
    assert half.result["error"]["class"] == "internal"


@nightly
async def test_an_older_attempt_ends_when_a_newer_one_has_saved(half, scripted_environment) -> None:
    api = await half.start_api()
    newer = await half.start_trainer(half.write_config(env={"total_steps": 1}), RL_ATTEMPT="3")
    await half.ready(newer)
    async with scripted_environment():
        assert await newer.exit_code() == 0, newer.log
    await half.stop_api(api)
    await half.start_api()
    older = await half.start_trainer(half.write_config(), RL_ATTEMPT="2")
    assert await older.exit_code() == 1, older.log
    assert "attempt 3 of this run has already saved" in older.log


async def test_sigterm_while_the_backend_hangs_ends_in_time_and_says_what_is_lost(
    half, scripted_environment, tinker_service
) -> None:
    config = half.write_config(env={"total_steps": 50}, tinker={"save_checkpoint_interval": 2})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        async with scripted_environment():
            await half.reached(trainer, 3, saved=True)
            proxy.faults = [Fault("delay", "POST ", times=None, seconds=60)]
            asked = time.monotonic()
            trainer.stop()
            assert await trainer.exit_code() == 4, trainer.log
    assert time.monotonic() - asked < 25
    result = half.result
    assert result["outcome"] == "failed"
    assert result["error"]["class"] == "backend"
    assert "stopped on request, but the last" in result["error"]["message"]
    assert result["stepsTrained"] >= 2
    assert result["statePath"].endswith(f"step-{result['stepsTrained']:06d}")


@pytest.fixture
def stopped_while_full(half, scripted_environment, tinker_service, eventually) -> Callable[..., Awaitable[int]]:
    """The exit code of a trainer of two minibatches a step, which is stopped once a request is turned away."""

    async def stopped(full: Fault, grace: int = 600, interval: int = 100) -> int:
        config = half.write_config(
            env={"total_steps": 50}, tinker={"num_substeps": 2, "save_checkpoint_interval": interval}
        )
        full = replace(full)  # it counts: a second try counts from 0
        await half.start_api()
        async with FaultProxy(tinker_service.url).running() as proxy:
            trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, RL_GRACE_SECONDS=str(grace))
            await half.ready(trainer)
            proxy.faults = [full]

            async def held() -> bool:
                return full.hits > 0

            async with scripted_environment():
                await eventually("a request is turned away", held)
                trainer.stop()
                code = await trainer.exit_code()
        if code == 0:
            *_, trained, saved = proxy.numbers
            assert saved == trained + 1, "a backend that does requests by their numbers would wait for those in between"
        return code

    return stopped


def turned_away(path: str, skip: int, status: int) -> Fault:
    content = {"detail": "max_loras reached"}
    return Fault("answer", f"POST /api/v1/{path}$", skip=skip, times=None, status=status, content=content)


@pytest.mark.parametrize(
    ("full", "trained"),
    [
        (turned_away("forward_backward", skip=4, status=429), 2),
        (turned_away("save_weights_for_sampler", skip=2, status=400), 3),  # the step itself is trained
    ],
)
async def test_a_stop_ends_the_wait_for_room_and_saves_what_is_trained(half, stopped_while_full, full, trained) -> None:
    assert await stopped_while_full(full) == 0
    assert (half.result["outcome"], half.result["stepsTrained"]) == ("stopped", trained)
    assert half.result["statePath"].endswith(f"step-{trained:06d}")


async def test_half_a_step_is_not_saved(half, stopped_while_full) -> None:
    assert await stopped_while_full(turned_away("forward_backward", skip=5, status=429)) == 4
    assert (half.result["outcome"], half.result.get("statePath")) == ("failed", None)
    assert "middle of a step" in half.result["error"]["message"]


@pytest.mark.parametrize("fault", ["answer", pytest.param("refuse", marks=nightly)])
async def test_a_save_that_there_is_no_room_for_ends_with_the_grace_period(half, stopped_while_full, fault) -> None:
    """Of the loop's own, every two steps. What is saved already does not expire, and the backend's words are told."""
    full = Fault(
        fault, "POST /api/v1/save_weights$", skip=1, times=None, status=429, content={"error": "max_loras reached"}
    )
    assert await stopped_while_full(full, grace=20, interval=2) == 4
    assert (half.result["outcome"], half.result["stepsTrained"]) == ("failed", 2)
    assert half.result["statePath"].endswith("step-000002")
    assert not half.result["checkpoint"].get("expiresAt")
    assert "max_loras" in half.result["error"]["message"]


async def test_a_stop_waits_for_a_slow_step_as_long_as_the_grace_period_allows(
    half, scripted_environment, tinker_service, eventually
) -> None:
    config = half.write_config(env={"total_steps": 50})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, RL_GRACE_SECONDS="60")
        await half.ready(trainer)
        async with scripted_environment():
            await half.reached(trainer, 2)
            slow = Fault("delay", "POST /api/v1/optim_step", seconds=12)  # longer than any step had, whatever the grace
            proxy.faults = [slow]

            async def at_the_slow_step() -> bool:
                return slow.hits > 0

            await eventually("the slow step has begun", at_the_slow_step)
            before = (await half.status(trainer))["step"]
            trainer.stop()
            assert await trainer.exit_code() == 0, trainer.log
    assert half.result["outcome"] == "stopped"
    assert half.result["stepsTrained"] == before + 1


async def test_checkpoints_are_few_and_those_of_a_stop_do_not_expire(
    half, scripted_environment, tinker_service
) -> None:
    config = half.write_config(
        env={"total_steps": 50},
        tinker={"save_checkpoint_interval": 1, "keep_checkpoints": 2, "keep_checkpoint_every": 3},
    )
    trainer = await half.ready_trainer(config)
    async with scripted_environment():
        await half.reached(trainer, 5, saved=True)
        assert (await half.status(trainer))["checkpoint"]["expiresAt"]
        assert half.result["checkpoint"]["expiresAt"]
        trainer.stop()
        assert await trainer.exit_code(25) == 0, trainer.log
    result = half.result
    reached = result["stepsTrained"]
    assert result["checkpoint"].get("expiresAt") is None
    assert result["droppedAtStop"] >= 0
    saved = await checkpoints_of(half, tinker_service, result["trainingRunId"])
    steps = {int(path[-6:]): expires_at for path, expires_at in saved.items()}
    assert set(steps) == {*range(3, reached, 3), reached - 1, reached}
    assert steps.pop(reached) is None
    assert all(steps.values())


async def test_an_attempt_after_the_last_step_still_delivers_the_weights(
    half, scripted_environment, tinker_service
) -> None:
    """The previous one was killed with all steps trained, before it reported so. They are evaluated, too."""
    config = half.write_config(env={"total_steps": 1, "eval_items": 8, "eval_samples": 1})
    api = await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        proxy.faults = [Fault("delay", "POST /api/v1/save_weights_for_sampler", skip=2, times=None, seconds=60)]
        first = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(first)
        async with scripted_environment():
            await half.reached(first, 1, saved=True)
            first.stop(signal.SIGKILL)
            await first.exit_code()
    assert half.result["stepsTrained"] == 1
    assert half.result.get("samplerPath") is None
    await half.stop_api(api)

    await half.start_api()
    second = await half.start_trainer(config, RL_ATTEMPT="2")
    await half.start("environment", "sort_digits", "serve", "--config", str(config))
    assert await second.exit_code() == 0, second.log
    assert half.result["outcome"] == "succeeded"
    assert half.result["metrics"]["heldOut"]["samples"] == 8
    assert half.result["stepsTrained"] == 1
    assert half.result["samplerPath"] in await checkpoints_of(half, tinker_service, half.result["trainingRunId"])


async def checkpoints_of(half, tinker_service, training_run_id: str) -> dict[str, str | None]:
    """Paths of a training run's checkpoints, and when they expire."""
    url = f"{tinker_service.url}/api/v1/training_runs/{training_run_id}/checkpoints"
    listed = (await half.client.get(url, headers={"X-API-Key": tinker_service.key})).json()["checkpoints"]
    return {checkpoint["tinker_path"]: checkpoint["expires_at"] for checkpoint in listed}


async def test_the_final_evaluation_counts_even_if_the_environment_leaves_at_once(half, scripted_environment) -> None:
    """The trainer learns that it has left before it receives the metrics."""
    config = half.write_config(env={"total_steps": 1})
    await half.start_api()
    async with FaultProxy(half.env_vars["RL_API_URL"]).running() as proxy:
        trainer = await half.start_trainer(config, RL_API_URL=proxy.url)
        await half.ready(trainer)
        async with scripted_environment(lingers=True) as environment:
            await half.says(trainer, "the environment evaluates the final weights")
            proxy.faults = [Fault("delay", "GET /rl/metrics", times=None, seconds=3)]
            await environment.report(step=1, eval__percent_correct=0.75)
            environment.lease = {**environment.lease, "state": "done"}
            assert await trainer.exit_code() == 0, trainer.log
    assert half.result["metrics"]["heldOut"]["value"] == 0.75
