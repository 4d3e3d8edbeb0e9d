"""Where the runner takes part in the life of an environment it did not write: each seam with its reason."""

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


class Seams:
    """Counts what one environment does, and delivers its groups.

    The methods are replaced on the instance, so that an author's overrides and their `super()` stay as written.
    """

    def __init__(
        self, env: Any, source: Path, tally: Tally, sender: GroupSender, give_up: Callable[[EnvironmentLostError], None]
    ) -> None:
        self._env, self._source, self._tally, self._sender = env, source, tally, sender
        self._give_up = give_up
        self._collect, self._handle = env.collect_trajectories, env.handle_send_to_api
        env.collect_trajectories = self.collect
        env.handle_send_to_api = self.handle
        env._send_scored_data_to_api = self.send  # noqa: SLF001 -- the one place through which groups leave

    async def collect(self, item: Any) -> Any:
        """BaseEnv logs and forgets what a rollout raises: remember it, and end when nothing else happens."""
        try:
            collected = await self._collect(item)
        except SystemExit as error:
            self._give_up(environment_failed("in a rollout", error, self._source))
            return None, []
        except Exception as error:  # noqa: BLE001 -- the author's code, and BaseEnv would swallow it
            self._note_failure(
                describe(error, self._source), environment_failed("in every rollout", error, self._source)
            )
            return None, []
        if collected[0] is None:
            nothing = "collect_trajectories returned no group"
            self._note_failure(nothing, EnvironmentLostError(f"the environment makes no groups: {nothing}"))
        else:
            self._tally.collected()
        return collected

    def _note_failure(self, reason: str, error: EnvironmentLostError) -> None:
        self._tally.failed(reason)
        if self._tally.hopeless:
            self._give_up(error)

    async def handle(self, scored: Any, *args: Any, **kwargs: Any) -> Any:
        """See the rewards before BaseEnv drops groups whose rewards are equal."""
        for group in scored if isinstance(scored, list) else [scored]:
            if group is not None:
                self._tally.scored(group["scores"])
        return await self._handle(scored, *args, **kwargs)

    async def send(self, scored: Any) -> None:
        await self._sender.send(self._env, scored)
