"""Faults between the trainer and its backend: each has its expected end, and training is always correct.

The real Tinker service, the real SDK, a proxy between them.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.integration.training.conftest import eventually
from tests.integration.training.faults import Fault, FaultProxy

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer")

SERVICE = "/api/v1"
STEPS = 5
RESTART_SECONDS = 150


@dataclass(frozen=True)
class Case:
    """Faults, and how a run of 5 steps with a checkpoint every 2 ends: succeeded, or with this class and sentence."""

    name: str
    faults: tuple[Fault, ...]
    rebuilds: int = 0
    error: tuple[int, str, str] | None = None
    deadline: float = 30
    log: str = ""


def on(path: str, kind: Any, method: str = "POST", **options: Any) -> Fault:
    return Fault(kind, f"{method} {SERVICE}/{path}$", **options)


PAGE = "<h1>Maintenance</h1>"
"""Of a gateway, which says nothing about the key."""

RETRIED = Case(
    "what the SDK tries again",
    (
        on("forward_backward", "answer", status=503, skip=1, times=2),
        on("forward_backward", "drop_before", skip=3),
        on("optim_step", "answer", status=429, skip=1),
        on("optim_step", "drop_after", skip=3),
        on("optim_step", "answer", status=403, content=PAGE, skip=4),
        on("retrieve_future", "answer", status=401, content=PAGE, skip=12),
        on("asample", "answer", status=302, content=PAGE, skip=5),
        on("retrieve_future", "answer", status=408, skip=8, times=3),
        on("save_weights", "drop_after"),
        on("asample", "drop_after", skip=2, times=2),
        Fault("answer", f"DELETE {SERVICE}/training_runs/", status=403, times=None),
    ),
    log="old checkpoints could not be deleted",
)
REBUILT = (
    Case("a refused step", (on("forward_backward", "answer", status=422, skip=3),), rebuilds=1),
    Case("a refused step before any checkpoint", (on("optim_step", "answer", status=400, skip=1),), rebuilds=1),
    Case("a result that is gone", (on("retrieve_future", "answer", status=404, skip=12),), rebuilds=1),
    Case("a sampler that is gone", (on("asample", "answer", status=404, skip=6),), rebuilds=1),
    Case("a refused save", (on("save_weights", "answer", status=422, skip=1),), rebuilds=1),
    Case(
        "two losses, and trouble while it is opened again",
        (
            on("forward_backward", "answer", status=422, skip=3, times=2),
            on("load_weights", "answer", status=500, times=2),
            on("create_session", "answer", status=400),
        ),
        rebuilds=2,
    ),
)
PAUSED = {"type": "try_again", "queue_state": "paused_capacity", "queue_state_reason": "short on capacity"}
ADAPTERS = {"detail": "Maximum number of LoRA adapters (6) reached"}
REFUSED = {"error": ADAPTERS["detail"], "category": "user"}
SECONDS = 9.0
"""Three deadlines."""


def result_of(what: str, **options: Any) -> Fault:
    asked = f"x-tinker-request-type: {what}"
    return on("retrieve_future", "answer", status=408, content=PAUSED, lasting=SECONDS, having=asked, **options)


def turned_away(path: str, status: int, content: dict[str, Any], **options: Any) -> Fault:
    return on(path, "answer", status=status, content=content, lasting=SECONDS, **options)


WAITED_OUT = (
    Case("training pauses", (result_of("ForwardBackward", skip=2),), deadline=3),
    Case("sampling pauses", (result_of("Sample", skip=20),), deadline=3),
    Case("the optimizer pauses", (result_of("OptimStep", skip=2),), deadline=3),
    Case("saving pauses", (result_of("SaveWeights", skip=1),), deadline=3),
    Case("a limit of the rate", (turned_away("asample", 429, ADAPTERS, skip=9),), deadline=3),
    Case(
        "an outage that asks for patience",
        (turned_away("forward_backward", 503, {"detail": "maintenance"}, skip=2, headers="Retry-After: 1\r\n"),),
        deadline=3,
    ),
    Case("no room for a sampler", (turned_away("save_weights_for_sampler", 503, ADAPTERS, skip=2),), deadline=3),
    Case(
        "no room for a sampler after all",
        (on("save_weights_for_sampler", "refuse", content=REFUSED, lasting=SECONDS, skip=2),),
        deadline=3,
    ),
    Case("no room for samples", (on("asample", "refuse", content=REFUSED, lasting=SECONDS, skip=9),), deadline=3),
    Case(
        "lost, and paused while it is opened again",
        (
            on("forward_backward", "answer", status=422, skip=3),
            turned_away("load_weights", 400, {"detail": "You have reached your limit of 3 concurrent runs"}),
        ),
        rebuilds=1,
        deadline=3,
    ),
)
NOT_TIDIED = Case(
    "checkpoints are not listed",
    (Fault("answer", f"GET {SERVICE}/", status=429, times=None),),
    log="old checkpoints could not be deleted: listing checkpoints: paused by the backend for longer than 3 s",
)
FAILED = (
    Case(
        "refused forever",
        (on("forward_backward", "answer", status=422, skip=2, times=None),),
        error=(4, "backend", "training was opened again 5 times and failed each time before step 3: forward_backward"),
    ),
    Case(
        "payment wanted",
        (on("optim_step", "answer", status=402, skip=1, times=None),),
        error=(3, "billing", "the backend wants payment: an injected answer: 402"),
    ),
    Case(
        "a key that is revoked",
        (on("forward_backward", "answer", status=401, skip=1, times=None),),
        error=(3, "credentials", "does not accept TINKER_API_KEY"),
    ),
    Case(
        "errors instead of answers",
        (on("retrieve_future", "answer", status=500, skip=9, times=None),),
        deadline=3,
        error=(4, "backend", "it answers HTTP 500: an injected answer: 500"),
    ),
    Case(
        "no answer",
        (on("forward_backward", "delay", seconds=60, skip=1, times=None),),
        deadline=3,
        error=(4, "backend", "forward_backward: no answer within trainer.backend_deadline_seconds (3 s)"),
    ),
)


def named(cases: tuple[Case, ...], merge: int) -> Any:
    """The first `merge` of them in each landing, the others nightly."""
    marked = [pytest.param(case, id=case.name, marks=() if n < merge else nightly) for n, case in enumerate(cases)]
    return pytest.mark.parametrize("case", marked)


async def run_with(half, scripted_environment, tinker_service, case: Case) -> Any:
    """Run to the end; returns the trainer."""
    faults = [replace(fault) for fault in case.faults]
    config = half.write_config(
        env={"total_steps": STEPS},
        tinker={"save_checkpoint_interval": 2, "keep_checkpoints": 1, "backend_deadline_seconds": case.deadline},
    )
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        proxy.faults = faults
        async with scripted_environment():
            code = await trainer.exit_code()
    assert code == (case.error[0] if case.error else 0), trainer.log
    assert [fault for fault in faults if not fault.hits] == [], trainer.log
    return trainer


@nightly
async def test_errors_the_sdk_retries_only_cost_time(half, scripted_environment, tinker_service) -> None:
    trainer = await run_with(half, scripted_environment, tinker_service, RETRIED)
    assert half.has_succeeded(STEPS), half.result
    assert half.result["samplerPath"]
    assert "the backend was lost" not in trainer.log
    assert RETRIED.log in trainer.log


@named(WAITED_OUT, merge=1)
async def test_a_backend_that_has_no_room_is_waited_for(half, scripted_environment, tinker_service, case) -> None:
    trainer = await run_with(half, scripted_environment, tinker_service, case)
    assert half.has_succeeded(STEPS), half.result
    assert trainer.log.count("the backend was lost after step") == case.rebuilds, trainer.log
    assert half.result["attempt"] == 1


@nightly
async def test_housekeeping_holds_up_no_training(half, scripted_environment, tinker_service) -> None:
    trainer = await run_with(half, scripted_environment, tinker_service, NOT_TIDIED)
    assert half.has_succeeded(STEPS), half.result
    assert NOT_TIDIED.log in trainer.log


@named(REBUILT, merge=1)
async def test_a_lost_backend_is_reopened(half, scripted_environment, tinker_service, case) -> None:
    trainer = await run_with(half, scripted_environment, tinker_service, case)
    assert half.has_succeeded(STEPS), half.result
    assert half.result["samplerPath"]
    assert trainer.log.count("the backend was lost after step") == case.rebuilds, trainer.log
    logged = [line.split(" step ")[1].split("/")[0] for line in trainer.log.splitlines() if f"/{STEPS}  " in line]
    assert logged == [str(step) for step in range(1, STEPS + 1)], "each step is logged once, in order"


@named(FAILED, merge=2)
async def test_permanent_errors_are_reported_by_class(half, scripted_environment, tinker_service, case) -> None:
    await run_with(half, scripted_environment, tinker_service, case)
    assert half.result["outcome"] == "failed"
    assert half.result["error"]["class"] == case.error[1]
    assert case.error[2] in half.result["error"]["message"]


async def test_a_learning_rate_that_diverges(half, scripted_environment) -> None:
    """It is the run's own fault: the backend is not blamed, asked again, or given such weights to keep."""
    config = half.write_config(env={"total_steps": 200}, tinker={"learning_rate": 1.0, "weight_decay": 1_000.0})
    trainer = await half.ready_trainer(config)
    async with scripted_environment():
        assert await trainer.exit_code() == 1, trainer.log
    result = half.result
    assert (result["outcome"], result["error"]["class"], result.get("statePath")) == ("failed", "diverged", None)
    assert re.match(
        r"training diverged after step \d+: .*lower trainer.learning_rate \(1\)", result["error"]["message"]
    )
    assert "the backend was lost" not in trainer.log


async def test_a_policy_that_collapses(half, scripted_environment) -> None:
    """By what an environment's runner reports. Weights from which nothing is learned are not saved over better ones."""
    trainer = await half.ready_trainer(half.write_config(env={"total_steps": 500}))
    async with scripted_environment() as environment:
        await half.reached(trainer, 1)
        await environment.report(1, env__groups_kept=50, env__groups_filtered_equal=0, env__reward_mean=0.75)
        await environment.report(1, env__groups_kept=50, env__groups_filtered_equal=120, env__reward_mean=0)
        assert await trainer.exit_code() == 1, trainer.log
    result = half.result
    assert (result["outcome"], result["error"]["class"], result.get("statePath")) == ("failed", "diverged", None)
    assert "the policy has collapsed: the rewards of each of the last 120 groups" in result["error"]["message"]
    assert "lower trainer.learning_rate (0.001)" in result["error"]["message"]


async def test_a_temporarily_unreachable_backend(half, scripted_environment, tinker_service) -> None:
    config = half.write_config(env={"total_steps": STEPS})
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        async with scripted_environment():
            await half.reached(trainer, 1)
            await proxy.cut()

            async def told() -> str:
                status = await half.status(trainer)
                return status["waiting"] if (status["waiting"] or "").startswith("The backend at") else ""

            assert "the connection" in await eventually("the trainer says what is in the way", told)
            ready = await half.client.get(f"{trainer.ops_url}/healthz")
            proxy.fix()
            assert await trainer.exit_code() == 0, trainer.log
    assert ready.status_code == 200, "it goes on to serve what it can"
    assert half.has_succeeded(STEPS), half.result


async def test_a_backend_that_is_not_there_is_named_until_it_is(half, tinker_service) -> None:
    """By the process itself: in what the operator asks, in what the kubelet asks, and in its log."""
    config = half.write_config()
    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        await proxy.cut()
        trainer = await half.start_trainer(config, TINKER_BASE_URL=proxy.url)

        async def told() -> dict[str, Any]:
            status = (await half.client.get(f"{trainer.ops_url}/status")).json()
            return status if status["backendSilent"] else {}

        status = await eventually("the trainer says what is in the way", told)
        assert status["waiting"].startswith(f"The backend at {proxy.url} does not answer for")
        assert (await half.client.get(f"{trainer.ops_url}/healthz")).text.startswith("The backend at")
        assert f"WARNING {proxy.url} does not answer: " in trainer.log
        proxy.fix()
        await half.ready(trainer)
        status = (await half.client.get(f"{trainer.ops_url}/status")).json()
        assert not status["backendSilent"]
        assert "The backend at" not in (status["waiting"] or "")


async def test_a_restarted_service(half, scripted_environment, start_tinker_service, tmp_path_factory) -> None:
    """What it held in memory is gone; its checkpoints are not.

    A service starts slowly on a busy machine: neither the backend's deadline nor the environment's lease, which is not
    renewed meanwhile, may end before.
    """
    folder = tmp_path_factory.mktemp("restarted")
    config = half.write_config(
        env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": 2, "backend_deadline_seconds": RESTART_SECONDS}
    )
    await half.start_api()
    async with FaultProxy("").running() as proxy:
        with start_tinker_service(folder) as service:
            proxy.upstream = service.url
            trainer = await half.start_trainer(config, **{**service.env_vars, "TINKER_BASE_URL": proxy.url})
            await half.ready(trainer)
            async with scripted_environment() as environment:
                environment.lease = {**environment.lease, "ttl_seconds": RESTART_SECONDS}
                await half.reached(trainer, 2, saved=True)
                service.process.kill()
                service.process.wait()
        with start_tinker_service(folder) as service:
            proxy.upstream = service.url
            async with scripted_environment():
                assert await trainer.exit_code(RESTART_SECONDS) == 0, trainer.log
    assert half.has_succeeded(STEPS), half.result


@nightly
async def test_an_attempt_whose_checkpoint_is_gone(half, scripted_environment, tinker_service) -> None:
    """It ends, and trains again from the one before only if that is allowed; then it says so."""
    config = half.write_config(env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": 1})
    api = await half.start_api()
    first = await half.start_trainer(config)
    await half.ready(first)
    async with scripted_environment():
        await half.reached(first, 3, saved=True)
        first.stop()
        assert await first.exit_code(25) == 0, first.log
    newest, reached = half.result["statePath"], half.result["stepsTrained"]
    recorded = {"RL_CHECKPOINT_STEP": str(reached), "RL_CHECKPOINT_PATH": newest}
    await half.stop_api(api)

    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        proxy.faults = [on("load_weights", "answer", status=404)]
        second = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, RL_ATTEMPT="2", **recorded)
        assert await second.exit_code() == 1, second.log
        assert half.result["error"]["class"] == "checkpoint"
        assert f"after step {reached} that this run saved" in half.result["error"]["message"]
        assert half.result["stepsTrained"] == 0, "it trained nothing"

        proxy.faults = [on("load_weights", "answer", status=404)]
        allowed = {"RL_ATTEMPT": "3", "RL_RESTART_IF_CHECKPOINT_LOST": "1"}
        third = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, **recorded, **allowed)
        await half.ready(third)
        assert half.result["stepsTrained"] == half.result["fromStep"] == reached - 1
        assert f"the checkpoint after step {reached} is gone" in third.log
        (warning,) = (await half.status(third))["warnings"]
        assert warning.startswith(f"training restarted from step {reached - 1}: ")
        async with scripted_environment():
            assert await third.exit_code() == 0, third.log
    assert half.result["stepsTrained"] == STEPS


@nightly
async def test_no_checkpoint_is_left(half, scripted_environment, tinker_service) -> None:
    config = half.write_config(env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": 1})
    api = await half.start_api()
    first = await half.start_trainer(config)
    await half.ready(first)
    async with scripted_environment():
        await half.reached(first, 2, saved=True)
        first.stop()
        assert await first.exit_code(25) == 0, first.log
    await half.stop_api(api)

    await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        proxy.faults = [on("load_weights", "answer", status=404, times=None)]
        second = await half.start_trainer(config, TINKER_BASE_URL=proxy.url, RL_ATTEMPT="2")
        assert await second.exit_code() == 1, second.log
    assert half.result["error"]["class"] == "checkpoint"
    assert "of this run it has none that can be loaded" in half.result["error"]["message"]
