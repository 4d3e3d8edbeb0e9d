"""Resumed equals uninterrupted, bitwise: the same tape of batches, trained straight through and with losses."""

import signal
from pathlib import Path

import pytest
from tests.integration.training.faults import Fault, FaultProxy
from tests.integration.training.tape import Tape, TapePlayer, record_tape, saved_tensors

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer")

STEPS = 6
INTERVAL = 2
OPTIMIZER = {
    "learning_rate_schedule": "cosine",
    "warmup_steps": 3,
    "weight_decay": 0.1,
    "grad_clip_norm": 0.5,
    "num_substeps": 2,
    "kl_penalty_coef": 0.1,
}
"""Every step has a rate of its own, and two optimizer steps: one for each of its groups."""


@pytest.fixture(
    scope="module", params=[True, pytest.param(False, marks=nightly)], ids=["with logprobs", "without logprobs"]
)
def tape(request, tinker_service) -> Tape:
    """Without logprobs, as most environments send groups, the policy of the step computes them: it must be the same."""
    tape = record_tape(tinker_service.url, tinker_service.key, steps=STEPS, groups=2, group_size=4)
    left_out = () if request.param else ("inference_logprobs",)
    return [[{name: rows for name, rows in group.items() if name not in left_out} for group in step] for step in tape]


async def test_losses_leave_no_trace_in_the_weights(half, tape, tinker_service) -> None:
    data = Path(tinker_service.log).parent / "data"
    config = half.write_config(
        env={"total_steps": STEPS}, tinker={"save_checkpoint_interval": INTERVAL, "keep_checkpoints": 1, **OPTIMIZER}
    )
    straight = saved_tensors(data, await trained_straight(half, tape, config))
    assert all(tensor.any() for name, tensor in straight.items() if "lora_B" in name), "what was zero has learned"
    for trained in (killed_and_resumed, killed_over_the_same_journal, lost_and_opened_again):
        tensors = saved_tensors(data, await trained(half, tape, config, tinker_service))
        assert tensors.keys() == straight.keys()
        for name, tensor in straight.items():
            assert tensors[name].tobytes() == tensor.tobytes(), f"{trained.__name__}: {name} differs"


def uid(half, way: str) -> str:
    """Of a run of this test and tape: the service keeps checkpoints of all of them."""
    return f"{half.folder.name}-{way}"


async def trained_straight(half, tape, config) -> str:
    api = await half.start_api()
    trainer = await half.start_trainer(config, RL_RUN_UID=uid(half, "straight"))
    await half.ready(trainer)
    async with TapePlayer(half, tape):
        return await finished(half, api, trainer)


async def killed_and_resumed(half, tape, config, _tinker_service) -> str:
    """A new attempt with a new journal continues from the newest checkpoint that it finds."""
    api = await half.start_api()
    first = await half.start_trainer(config, RL_RUN_UID=uid(half, "killed"))
    await half.ready(first)
    async with TapePlayer(half, tape[:3]):
        await half.reached(first, 3, saved=True)
        first.stop(signal.SIGKILL)
        await first.exit_code()
    await half.stop_api(api)

    api = await half.start_api()
    second = await half.start_trainer(config, RL_RUN_UID=uid(half, "killed"), RL_ATTEMPT="2")
    await half.ready(second)
    reached = half.result["stepsTrained"]
    assert reached == 2, "at most save_checkpoint_interval steps are lost"
    async with TapePlayer(half, tape[reached:]):
        return await finished(half, api, second)


async def killed_over_the_same_journal(half, tape, config, _tinker_service) -> str:
    """The same attempt, restarted: the api returns the batches since the checkpoint once more."""
    api = await half.start_api()
    first = await half.start_trainer(config, RL_RUN_UID=uid(half, "again"))
    await half.ready(first)
    async with TapePlayer(half, tape):
        await half.reached(first, 3, saved=True)
        first.stop(signal.SIGKILL)
        await first.exit_code()
        second = await half.start_trainer(config, RL_RUN_UID=uid(half, "again"))
        return await finished(half, api, second)


async def lost_and_opened_again(half, tape, config, tinker_service) -> str:
    """The fourth step's second half is refused, behind the checkpoint: its session is abandoned, and the steps since
    then are replayed.
    """
    api = await half.start_api()
    async with FaultProxy(tinker_service.url).running() as proxy:
        proxy.faults = [Fault("answer", "POST /api/v1/optim_step", skip=7, status=422)]
        trainer = await half.start_trainer(config, RL_RUN_UID=uid(half, "lost"), TINKER_BASE_URL=proxy.url)
        await half.ready(trainer)
        async with TapePlayer(half, tape):
            path = await finished(half, api, trainer)
    assert "the backend was lost after step 3" in trainer.log
    return path


async def finished(half, api, trainer) -> str:
    """The final state's path."""
    assert await trainer.exit_code() == 0, trainer.log
    assert half.has_succeeded(STEPS), half.result
    await half.stop_api(api)
    return half.result["statePath"]
