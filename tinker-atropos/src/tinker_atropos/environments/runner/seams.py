"""Where the runner takes part in the life of an environment it did not write: each seam with its reason."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from atroposlib.envs.base import BaseEnv
from tenacity import stop_after_delay, wait_random_exponential

from tinker_atropos.environments.runner.failures import describe, environment_failed
from tinker_atropos.environments.runner.sending import GroupSender
from tinker_atropos.environments.runner.tally import Tally
from tinker_atropos.errors import EnvironmentLostError

RETRY_SECONDS = 120.0


def widen_retries() -> None:
    """BaseEnv dies when the trajectory API is away for a second; give it time to restart."""
    for method in (BaseEnv.get_status, BaseEnv._register_env):  # noqa: SLF001 -- there is no other way to its retries
        method.retry.stop = stop_after_delay(RETRY_SECONDS)
        method.retry.wait = wait_random_exponential(multiplier=0.1, max=2)
        method.retry.reraise = True


def replace_env_manager(serve: Callable[[Any], Awaitable[None]]) -> None:
    """Put our loop where both `env.env_manager()` and an author's `super().env_manager()` find it."""

    async def env_manager(env: Any) -> None:
        await serve(env)

    BaseEnv.env_manager = env_manager


def wire(env: Any, source: Path, tally: Tally, api_url: str, give_up: Callable[[EnvironmentLostError], None]) -> None:
    """Count what the environment does, and deliver its groups.

    The methods are replaced on the instance, so that an author's overrides and their `super()` stay as written.
    """
    sender = GroupSender(api_url, tally, give_up)
    collect, handle = env.collect_trajectories, env.handle_send_to_api

    async def counted_collect(item: Any) -> Any:
        """BaseEnv logs and forgets what a rollout raises: remember it, and end when nothing else happens."""
        try:
            collected = await collect(item)
        except SystemExit as error:
            give_up(environment_failed("in a rollout", error, source))
            return None, []
        except Exception as error:  # noqa: BLE001 -- the author's code, and BaseEnv would swallow it
            note_failure(describe(error, source), environment_failed("in every rollout", error, source))
            return None, []
        if collected[0] is None:
            nothing = "collect_trajectories returned no group"
            note_failure(nothing, EnvironmentLostError(f"the environment makes no groups: {nothing}"))
        else:
            tally.collected()
        return collected

    def note_failure(reason: str, error: EnvironmentLostError) -> None:
        tally.failed(reason)
        if tally.hopeless:
            give_up(error)

    async def counted_handle(scored: Any, *args: Any, **kwargs: Any) -> Any:
        """See the rewards before atroposlib drops groups whose rewards are equal."""
        for group in scored if isinstance(scored, list) else [scored]:
            if group is not None:
                tally.scored(group["scores"])
        return await handle(scored, *args, **kwargs)

    async def send(scored: Any) -> None:
        await sender.send(env, scored)

    env.collect_trajectories = counted_collect
    env.handle_send_to_api = counted_handle
    env._send_scored_data_to_api = send  # noqa: SLF001 -- the one place through which groups leave
    env.setup_wandb = _nothing  # the relay needs no set-up, and there is no project to wait for


async def _nothing() -> None:
    await asyncio.sleep(0)
