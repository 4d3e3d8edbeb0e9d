"""verifiers' environment while it plays: its servers, its connection to the policy, and episodes of one task."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tinker_atropos.environments.adapters.verifiers.policy_chat import PolicyChat
from tinker_atropos.environments.adapters.verifiers.verifiers_package import vf

NO_KEY: Final = "RL_NO_API_KEY"
"""A variable that nobody sets: the inference server asks for no key."""


@dataclass(frozen=True, slots=True)
class PolicyEndpoint:
    """Where the policy is sampled, and how its messages become tokens. `tokenizer` is a folder or a name.
    `max_length` bounds prompt and answer together, in tokens.
    """

    url: str
    model: str
    tokenizer: str
    renderer: str
    max_length: int

    def client(self) -> Any:
        """The client of verifiers that keeps token ids. Raises ValidationError for an unknown renderer."""
        return vf.TrainClientConfig(
            base_url=self.url,
            api_key_var=NO_KEY,
            renderer_model_name=self.tokenizer,
            renderer={"name": self.renderer},
        )


class EpisodePlayer:
    """Starts and ends in a task of its own: what is opened there is closed there, whoever asks."""

    def __init__(self, env: Any, endpoint: PolicyEndpoint) -> None:
        self._env, self._endpoint = env, endpoint
        self._client = endpoint.client()
        self._ended = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises what keeps the environment's own servers from starting."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(ready), name="verifiers' servers")
        await asyncio.wait({self._serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            self._serving.result()

    async def close(self) -> None:
        self._ended.set()
        if self._serving is not None:
            await self._serving

    async def play(self, task: Any, n: int, marks: Mapping[str, Any]) -> list[Any]:
        """Play a task n times, at once. `marks` go with each request to the inference server, in the place of its own
        fields.
        """
        length = self._endpoint.max_length
        wanted = {"temperature": 1.0, "max_tokens": length, "rl_max_length": length}
        sampling = vf.SamplingConfig(**(wanted | dict(marks)))
        context = vf.ModelContext(model=self._endpoint.model, client=self._client, sampling=sampling)
        slots = self._env.slots(task, n)
        return await asyncio.gather(*(self._env.run_slot(slot, context) for slot in slots))

    def is_trained(self, trace: Any) -> bool:
        """Whether the policy sampled it, and is to learn from it: an agent may have a server of its own."""
        return bool(trace.agent.trainable and trace.agent.config.client == self._client)

    async def _serve(self, ready: "asyncio.Future[None]") -> None:
        async with _servers(self._env):
            ready.set_result(None)
            await self._ended.wait()


@contextlib.asynccontextmanager
async def _servers(env: Any) -> AsyncIterator[None]:
    async with PolicyChat.connected(), env.serving():
        yield
