"""The real BaseEnv of atroposlib 0.4.0 against the api, from registration to its end. The trainer is scripted."""

import asyncio
import os
from typing import Any

import pytest
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from rl_contract.bundled import BUNDLED, resolve_tokenizer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
baseenv = pytest.importorskip("atroposlib.envs.base")
from atroposlib.envs.server_handling.server_baseline import APIServerConfig  # noqa: E402 -- after the switch above

TOTAL_STEPS, BATCH_SIZE, GROUP_SIZE, MAX_BATCHES_OFFPOLICY = 6, 8, 4, 3


class CountingEnv(baseenv.BaseEnv):
    """Makes groups without a model, and counts them. No method of the protocol is touched."""

    name = "counting"
    made = 0

    async def setup(self) -> None:
        pass

    async def get_next_item(self) -> int:
        return 0

    async def collect_trajectories(self, _item: int) -> tuple[dict[str, Any], list[int]]:
        await asyncio.sleep(0.01)
        self.made += 1
        tokens = [[self.made, 8, 9]] * GROUP_SIZE
        # Long enough to be sent as gzip.
        logprobs = [[1.0, -0.123456789 * row, -0.5] for row in range(GROUP_SIZE)]
        messages = [[{"role": "user", "content": "x" * 2000}]] * GROUP_SIZE
        group = {
            "tokens": tokens,
            "masks": [[-100, 8, 9]] * GROUP_SIZE,
            "scores": [0.0, 1.0, 0.0, 1.0],
            "inference_logprobs": logprobs,
            "messages": messages,
        }
        return group, []

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> None:
        pass


def counting_env(api_url: str, **changes: Any) -> CountingEnv:
    config = baseenv.BaseEnvConfig(
        rollout_server_url=api_url,
        group_size=GROUP_SIZE,
        total_steps=-1,
        use_wandb=False,
        wandb_name="counting",
        tokenizer_name=resolve_tokenizer(BUNDLED),
        max_batches_offpolicy=MAX_BATCHES_OFFPOLICY,
        **changes,
    )
    server = APIServerConfig(base_url="http://127.0.0.1:9/v1", api_key="x", model_name="m", health_check=False)
    return CountingEnv(config, [server])


@pytest.mark.parametrize("share", [None, 1.0])
async def test_an_unmodified_environment_feeds_the_whole_run_and_ends_with_it(api, share) -> None:
    environment = counting_env(api.url, min_batch_allocation=share)
    registration = build.trainer_registration(num_steps=TOTAL_STEPS, batch_size=BATCH_SIZE)
    await api.post("/register", registration)
    serving = asyncio.create_task(environment.env_manager())
    trained: list[int] = []
    for step in range(TOTAL_STEPS):
        batch = None
        async with asyncio.timeout(60):
            while batch is None:
                batch = (await api.get("/batch?wait=5"))["batch"]
        trained += [group["tokens"][0][0] for group in batch]
        await asyncio.sleep(0.3)  # training takes time, in which the environment fills the queue and pauses
        assert not serving.done(), "the environment left before the trainer was done"
        await api.post("/rl/progress", {"steps_trained": step + 1})
    assert environment.env_id == 0
    assert environment.config.total_steps == TOTAL_STEPS
    assert environment.config.batch_size == BATCH_SIZE
    needed = TOTAL_STEPS * BATCH_SIZE // GROUP_SIZE
    assert trained == list(range(1, needed + 1)), "first in, first out, none lost"
    assert environment.made <= needed + MAX_BATCHES_OFFPOLICY * BATCH_SIZE // GROUP_SIZE
    before = environment.made
    await asyncio.sleep(0.5)  # the trainer saves its checkpoint: several of the environment's rounds
    assert environment.made == before, "nobody pays for groups that will not be trained"
    assert not serving.done()
    await api.post("/rl/progress", {"steps_trained": TOTAL_STEPS, "training_done": True})
    async with asyncio.timeout(60):
        await serving
