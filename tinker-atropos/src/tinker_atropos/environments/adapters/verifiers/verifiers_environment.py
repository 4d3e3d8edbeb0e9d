"""`verifiers/ID`: a taskset of verifiers v1. Its tasks, rewards and agents are the taskset's; what is sampled is ours.

An item is a task, and a rollout an episode of it. If several agents of an episode are trained, such as both players of
a game, each run of an agent is a rollout of its own, scored by its own reward, and an item makes a group for each seat:
the advantage of a rollout is what it earned more than the same seat did in the other episodes of the same task. A seat
that said nothing in some of the episodes has a smaller group. An evaluation judges an episode by its first seat.

Episodes that are cut, by max_turns or because max_token_length leaves no room, are scored as they are and trained, as
in `MultiTurnEnvironment`. How many that were is reported.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from pydantic import ValidationError

from tinker_atropos.environments.adapters.adapter_fields import VALUES
from tinker_atropos.environments.adapters.verifiers.agent_seats import PolicyChat, check_seats, check_task
from tinker_atropos.environments.adapters.verifiers.episodes import (
    PlayedEpisode,
    played_episode,
    sampled_tokens,
    seat_groups,
)
from tinker_atropos.environments.adapters.verifiers.taskset_catalog import FAMILY
from tinker_atropos.environments.adapters.verifiers.taskset_loading import LoadedTaskset, fingerprint, load_tasks
from tinker_atropos.environments.adapters.verifiers.taskset_sources import TasksetName
from tinker_atropos.environments.adapters.verifiers.verifiers_config import VerifiersConfig
from tinker_atropos.environments.adapters.verifiers.verifiers_package import (
    AgentInfo,
    MessageNode,
    TraceTask,
    message_to_wire,
    state_cls,
    vf,
)
from tinker_atropos.environments.base import Message, SampledEnvironment
from tinker_atropos.environments.items.grader_check import ITEMS
from tinker_atropos.environments.rollout.rollouts import Outcome, scored_group
from tinker_atropos.environments.rollout.sampled_work import current_work
from tinker_atropos.errors import ConfigError

NO_KEY: Final = "RL_NO_API_KEY"
"""A variable that nobody sets: the inference server asks for no key."""


class EpisodePlayer:
    """Starts and ends in a task of its own: what is opened there is closed there, whoever asks. `client` asks the
    policy `model`; `max_length` bounds prompt and answer together, in tokens.
    """

    def __init__(self, env: Any, client: Any, model: str, max_length: int) -> None:
        self._env, self._client, self._model, self._max_length = env, client, model, max_length
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

    async def play(self, task: Any, marks: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Play a task once for each of `marks`, at once: fields that go with each request to the inference server, in
        the place of its own.
        """
        contexts = [
            vf.ModelContext(model=self._model, client=self._client, sampling=self._sampling(each)) for each in marks
        ]
        slots = self._env.slots(task, len(marks))
        return await asyncio.gather(*map(self._env.run_slot, slots, contexts))

    def _sampling(self, marks: Mapping[str, Any]) -> Any:
        lengths = {"max_tokens": self._max_length, "rl_max_length": self._max_length}
        return vf.SamplingConfig(**(lengths | dict(marks)))

    def is_trained(self, trace: Any) -> bool:
        """Whether the policy sampled it, and is to learn from it: an agent may have a server of its own."""
        return bool(trace.agent.trainable and trace.agent.config.client == self._client)

    async def _serve(self, ready: "asyncio.Future[None]") -> None:
        async with PolicyChat.connected(), self._env.serving():
            ready.set_result(None)
            await self._ended.wait()


logging.getLogger("verifiers").setLevel(logging.ERROR)  # rollouts that fail are counted, and reported, here
logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # each answer of an agent is a request to itself

NEARLY = 1e-9
"""Ten rewards of 0.1 add up to a little less than 1."""


class VerifiersEnvironment(SampledEnvironment[Any], ABC):
    """A taskset. `taskset` is its name."""

    env_config_cls = VerifiersConfig

    _loaded: LoadedTaskset
    _player: EpisodePlayer | None = None
    _knows_answers = False

    @property
    @abstractmethod
    def taskset(self) -> TasksetName: ...

    async def setup(self) -> None:
        """Raises ConfigError if the taskset refuses its fields, cannot be played here, or lacks its data."""
        self._metrics: dict[str, list[float]] = defaultdict(list)
        wanted = self.config.eval_items if self.config.steps_per_eval > 0 else ITEMS  # the grader is checked on some
        self._loaded = await asyncio.to_thread(load_tasks, self.taskset, self.config, wanted)
        check_seats(self._loaded.env, self.taskset.module, greedy=self.config.eval_greedy)
        check_task(self._loaded.held_out[0], self.taskset.module)
        model, length = self.server.servers[0].config.model_name, int(self.config.max_token_length) - 1
        player = EpisodePlayer(self._loaded.env, self._policy_client(), model, length)
        await player.start()
        self._player = player
        self._knows_answers = await self._pays_for_plain_answers()
        await super().setup()

    async def close(self) -> None:
        if self._player is not None:
            await self._player.close()

    def _policy_client(self) -> Any:
        """The client of verifiers that keeps token ids. Raises ConfigError for an unknown renderer."""
        renderer = self.config.renderer
        try:
            return vf.TrainClientConfig(
                base_url=self.server.servers[0].config.base_url,
                api_key_var=NO_KEY,
                renderer_model_name=self.config.tokenizer_name,
                renderer={"name": renderer},
            )
        except ValidationError as error:
            raise ConfigError(f"env.renderer is {renderer!r}: {error.errors()[0]['msg']}") from None

    def training_items(self) -> Sequence[Any]:
        return self._loaded.training

    def held_out_items(self) -> Sequence[Any]:
        return self._loaded.held_out

    def prompt(self, item: Any) -> list[Message]:
        """The task's own. What an environment says first in an episode is not known before."""
        data = item.data
        system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if data.prompt is None:
            return [*system, {"role": "user", "content": f"(the first turn of task {data.idx})"}]
        if isinstance(data.prompt, str):
            return [*system, {"role": "user", "content": data.prompt}]
        return [*system, *map(message_to_wire, data.prompt)]

    def question(self, item: Any) -> str:
        """All of the task: what its environment says in later turns follows from it."""
        return fingerprint(item)

    def is_correct(self, score: float) -> bool:
        return bool(score >= self.config.success_reward - NEARLY)

    def requests_at_once(self, n: int) -> int:
        return n

    async def roll_out(self, item: Any, n: int, split: str) -> list[Outcome]:
        assert self._player is not None, "setup comes first"
        work = current_work()
        shape = {"temperature": 1.0} if split == "eval" else {}
        marks = [shape | work.marks | work.rollout_seed(work.next_rollout()) if work else shape for _ in range(n)]
        episodes = await self._player.play(item, marks)
        if work:
            for trace in (trace for episode in episodes for trace in episode.traces):
                work.add(item.data.idx, trace.num_turns, sampled_tokens(trace))
        outcomes = [played_episode(episode, self._player.is_trained) for episode in episodes]
        for played in (each for each in outcomes if isinstance(each, PlayedEpisode)):
            self._note(played)
        return list(outcomes)

    async def collect_trajectories(self, item: Any) -> tuple[Any, list[Any]]:
        """The groups of the seats. Raises IncompleteGroupError."""
        episodes = cast("list[PlayedEpisode]", await self._whole_group(item))
        groups = seat_groups(episodes)
        self.was_rewarded(item, [episode.score for episode in episodes])
        shown = item.data.idx
        return [scored_group(rollouts, self.config.group_size, item=shown) for rollouts in groups], []

    def _note(self, played: PlayedEpisode) -> None:
        for name, value in played.metrics.items():
            self._metrics[name].append(value)
        self._metrics["episodes_truncated"].append(float(played.truncated))

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """With the means of the taskset's own metrics and rewards since the last call."""
        means = {f"{FAMILY}/{name}": sum(each) / len(each) for name, each in self._metrics.items()}
        self._metrics.clear()
        await super().wandb_log({**(wandb_metrics or {}), **means})

    async def score_answer(self, item: Any, answer: str) -> float | None:
        """None if the environment adds turns of its own: then a task is more than one question."""
        return await answer_reward(item, answer) if type(self._loaded.env) is vf.SingleAgentEnv else None

    def gold_answer(self, item: Any) -> str | None:
        """The task's `answer`, where the grader takes it as it is: many want it in a format."""
        answer = getattr(item.data, "answer", None)
        return answer if self._knows_answers and isinstance(answer, str) else None

    async def _pays_for_plain_answers(self) -> bool:
        first = self._loaded.held_out[0]
        answer = getattr(first.data, "answer", None)
        if not isinstance(answer, str):
            return False
        try:
            reward = await self.score_answer(first, answer)
        except Exception:  # noqa: BLE001 -- the taskset's code, and rollouts will show what it raises
            return False
        return reward is not None and self.is_correct(reward)


def environment_class(name: str) -> type[VerifiersEnvironment]:
    """The class of `verifiers/NAME`, in any form of the name."""
    taskset = TasksetName.parse(name)

    def config_init(_cls: type) -> tuple[VerifiersConfig, list[object]]:
        return VerifiersConfig(**VALUES), []

    given = {"name": f"{FAMILY}/{taskset.module}", "taskset": taskset, "config_init": classmethod(config_init)}
    return type(VerifiersEnvironment.__name__, (VerifiersEnvironment,), given)


async def answer_reward(task: Any, answer: str) -> float | None:
    """None if no reward can be given without what an episode runs in. Raises what the rewards raise."""
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=state_cls(type(task))(),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=[
            MessageNode(message=vf.UserMessage(content=task.data.prompt_text)),
            MessageNode(message=vf.AssistantMessage(content=answer), sampled=True, parent=0),
        ],
        is_completed=True,
        ok=True,
    )
    await task.score(trace, None)
    return float(trace.reward) if trace.rewards else None
