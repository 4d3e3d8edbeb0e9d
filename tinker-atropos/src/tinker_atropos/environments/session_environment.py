"""The base class of environments whose rollouts are programs that ask the policy, as they would ask any server."""

from abc import ABC
from functools import partial

from tinker_atropos.environments.base import Item
from tinker_atropos.environments.recorded_environment import RecordedEnvironment, SessionConfig
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.environments.sessions.session_server import SessionServer

__all__ = ["SessionConfig", "SessionEnvironment"]


class SessionEnvironment(RecordedEnvironment[Item], ABC):
    """A task for programs. An author writes `training_items`, `held_out_items`, `prompt`, and `play`.

    All that a rollout asks with its session's `base_url` and `api_key` is trained: through OpenAI's completions and
    chat, and Anthropic's messages, with tools.
    """

    _server: SessionServer | None = None

    async def setup(self) -> None:
        self._server = SessionServer(self.renderer, self.model_name, self.context_length)
        await self._server.start()
        await super().setup()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()
        await super().close()

    async def begin_session(self, split: str) -> RolloutSession:
        assert self._server is not None, "setup comes first"
        return self._server.begin(partial(self.sampled, split), split)

    def end_session(self, session: RolloutSession) -> None:
        assert self._server is not None, "setup comes first"
        self._server.end(session)
