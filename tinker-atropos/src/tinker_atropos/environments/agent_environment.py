"""The base class of environments in which an agent works on a task with tools, and a grader looks at what it did."""

import asyncio
import copy
import logging
import os
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

import wandb
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from pydantic import Field

from rl_contract.bundled import resolve_tokenizer
from rl_contract.env_vars import WANDB_MODE
from tinker_atropos.environments.agents import toolbox
from tinker_atropos.environments.agents.agent_loop import AgentLoop, ChatServer, ProviderChat, SessionChat, ToolSchemas
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.rollout_page import write_page
from tinker_atropos.environments.agents.sandbox_tools import check_toolsets, tools_of_group
from tinker_atropos.environments.agents.sandbox_turns import SandboxTurns, sandbox_source
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.tool_context import Bridged, ToolContext
from tinker_atropos.environments.agents.toolbox import ReservedSandbox, Toolbox
from tinker_atropos.environments.base import Item, Message
from tinker_atropos.environments.items.held_out import Evaluation, evaluation_of
from tinker_atropos.environments.rollout.failures import IncompleteGroupError
from tinker_atropos.environments.rollout.rollouts import Outcome, Rollout
from tinker_atropos.environments.rollout.sampled_work import item_under_way
from tinker_atropos.environments.session_environment import SessionConfig, SessionEnvironment
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.sandbox import SandboxLimits

__all__ = ["AgentConfig", "AgentEnvironment"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

NO_LIMIT: Final = -1

MEAN_REWARD: Final = "eval/mean_reward"

RESULTS: Final = "eval_results"
"""Where `evaluate`, a file's own command, writes if it is not told."""

_reserved: ContextVar[ReservedSandbox | None] = ContextVar("reserved", default=None)
"""The sandbox of the rollout that is played."""

_group_tools: ContextVar[ToolSchemas | None] = ContextVar("group_tools", default=None)
"""Those that the rollouts of one group share."""


class AgentConfig(SessionConfig):
    """The fields of an environment with an agent. Names are those of hermes-agent's environments."""

    enabled_toolsets: list[str] | None = Field(
        default=None, description="Toolsets of the agent: terminal, files, search. Without it: all of them."
    )
    disabled_toolsets: list[str] | None = Field(default=None, description="Toolsets that it does not get.")
    distribution: str | None = Field(
        default=None, description="A named distribution, from which the toolsets of each group are drawn."
    )
    max_agent_turns: int = Field(default=30, gt=0, description="Most answers of the agent in one rollout.")
    agent_temperature: float | None = Field(
        default=None,
        ge=0,
        description="Temperature of training rollouts; null: the run's, trainer.sampling. Evaluations sample at 0.",
    )
    system_prompt: str | None = Field(default=None, description="What the agent is told first.")
    terminal_backend: Literal["local", "kubernetes"] | None = Field(
        default=None,
        description="Where sandboxes are. Without it: in pods if the run asks for them (spec.sandbox), else on this "
        "machine.",
    )
    terminal_timeout: float = Field(default=120.0, gt=0, description="Longest time for one call of a tool, in seconds.")
    tool_pool_size: int = Field(default=128, gt=0, description="How many calls of tools run at once.")
    extra_body: dict[str, Any] | None = Field(
        default=None, description="More fields of every request to the model, such as a provider's preferences."
    )
    eval_size: int | None = Field(
        default=None, gt=0, description="How many held-out items an evaluation plays. Without it: eval_items."
    )
    eval_samples: int = Field(default=1, gt=0, description="How often an evaluation plays each, at temperature 0.")
    eval_greedy: bool = Field(default=False, description="Not for agents: all their evaluations are at temperature 0.")
    sandbox_memory_mb: int = Field(
        default=1024, gt=0, description="Most memory of a process in a sandbox on this machine, in MiB."
    )
    sandbox_disk_mb: int = Field(
        default=256, gt=0, description="Most that the files of a sandbox on this machine may take, in MiB."
    )


class AgentEnvironment(SessionEnvironment[Item], ABC):
    """A task for an agent with tools. An author writes `format_prompt` and `compute_reward`, and says which items there
    are: by `training_items` and `held_out_items`, or by `setup`, `get_next_item` and `evaluate`.

    `prepare`, `compute_reward` and `evaluate` may call the synchronous methods of a `ToolContext`: other rollouts go on
    meanwhile.

    A file of an environment also runs by itself: `python my_env.py process` makes data, `evaluate` measures a model.
    Atroposlib's command line overrides a config file, which overrides `config_init`.
    """

    env_config_cls = AgentConfig
    serves_sessions = False
    eval_metric: ClassVar[str] = MEAN_REWARD
    default_toolsets: ClassVar[Sequence[str]] = ()
    """A hint for readers; what counts is `enabled_toolsets`."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("prepare", "compute_reward", "evaluate"):
            if name in cls.__dict__:
                setattr(cls, name, _bridged(cls.__dict__[name]))

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        check_toolsets(config.enabled_toolsets, config.disabled_toolsets, config.distribution)
        limits = SandboxLimits(memory_mb=config.sandbox_memory_mb, disk_mb=config.sandbox_disk_mb)
        self._sandbox_source = source = sandbox_source(config.terminal_backend, limits)
        config.tokenizer_name = resolve_tokenizer(config.tokenizer_name)
        if source.capacity is not None:
            time_each_rollout(config)
        super().__init__(config, with_key(server_configs), slurm, testing)
        self._toolbox = Toolbox(source.make_pool, config.terminal_timeout, config.tool_pool_size, source.capacity or 1)
        self._turns = None if source.capacity is None else SandboxTurns(self._toolbox, source.capacity, self.note)
        toolbox.install(self._toolbox)

    @abstractmethod
    def format_prompt(self, item: Item) -> str:
        """What the agent is asked."""

    @abstractmethod
    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float | Mapping[str, float]:
        """The reward of a rollout, from 0 to 1, or rewards by name, which are added up. `ctx` works in its sandbox.

        What it raises costs this rollout only.
        """

    async def prepare(self, item: Item, ctx: ToolContext) -> None:
        """What is done in a rollout's sandbox before its agent begins, such as writing files. Nothing by default."""

    def tools(self) -> Sequence[Tool]:
        """Tools of the author's own, besides the toolsets."""
        return ()

    def training_items(self) -> Sequence[Item]:
        return ()

    def held_out_items(self) -> Sequence[Item]:
        return ()

    def items_evaluated(self) -> int:
        return int(self.config.eval_size or self.config.eval_items)

    def prompt(self, item: Item) -> list[Message]:
        system = [{"role": "system", "content": self.config.system_prompt}] if self.config.system_prompt else []
        return [*system, {"role": "user", "content": self.format_prompt(item)}]

    def first_prompt(self, item: Item) -> list[int]:
        schemas, _ = self._resolve_tools_for_group()
        return [int(token) for token in self.renderer.ids(self.prompt(item), schemas)]

    def check_config(self) -> None:
        """Also if it has tools for a sandbox, and there will be none, or if `eval_greedy` is set."""
        super().check_config()
        if self.config.eval_greedy:
            raise ConfigError("env.eval_greedy is true, and all evaluations of agents are greedy: leave it out")
        schemas, _ = self._resolve_tools_for_group()
        if any(tool.in_sandbox for tool in schemas.tools.values()):
            self._sandbox_source.check()

    async def close(self) -> None:
        self._toolbox.close()
        await super().close()

    async def roll_out(self, item: Item, n: int, split: str) -> list[Outcome]:
        schemas, _ = self._resolve_tools_for_group()
        token = _group_tools.set(schemas)
        try:
            return await super().roll_out(item, n, split)
        finally:
            _group_tools.reset(token)

    def _resolve_tools_for_group(self) -> tuple[ToolSchemas, set[str]]:
        """The tools' schemas, and their names. Authors call it, too."""
        config = self.config
        wishes = (config.enabled_toolsets, config.disabled_toolsets, config.distribution)
        tools = tools_of_group(*wishes, self.tools(), self._generator())
        return ToolSchemas(tools), set(tools)

    def _generator(self) -> random.Random:
        """Which toolsets a group gets follows from its item."""
        position = item_under_way.get()
        return self._without_item if position is None else random.Random(f"{self.config.item_seed}/{position}")  # noqa: S311

    @cached_property
    def _without_item(self) -> random.Random:
        return random.Random(self.config.item_seed)  # noqa: S311 -- see above

    @property
    def rollouts_wait_for(self) -> str | None:
        """What keeps all rollouts from going on, if anything does."""
        return "a sandbox" if self._turns is not None and self._turns.all_wait else None

    @asynccontextmanager
    async def in_play(self, split: str) -> AsyncIterator[None]:
        """With pods, a rollout begins when there is a sandbox for it: else it would wait for one, and lose its time."""
        if self._turns is None:
            yield
            return
        async with self._turns.turn(split) as reserved:
            token = _reserved.set(reserved)
            try:
                yield
            finally:
                _reserved.reset(token)

    async def play(self, item: Item, session: RolloutSession) -> float | Mapping[str, float]:
        task_id = str(uuid.uuid4())
        ctx = ToolContext(task_id)
        if reserved := _reserved.get():
            self._toolbox.give(task_id, reserved)
        try:
            await self.prepare(item, ctx)
            result = await self._agent(session, task_id).run(self.prompt(item))
            session.messages = result.messages
            if session.split == "train":
                self.note({"agent/finished": result.finished_naturally, "agent/tool_calls": len(result.called_tools)})
                self.note({"agent/tool_errors": len(result.tool_errors)})
            grader = self if session.split == "train" else self._aside()
            return await grader.compute_reward(item, result, ctx)
        finally:
            await asyncio.to_thread(self._toolbox.end, task_id)

    def _agent(self, session: RolloutSession, task_id: str) -> AgentLoop:
        config, schemas = self.config, _group_tools.get() or self._resolve_tools_for_group()[0]
        return AgentLoop(
            self._chat(session),
            schemas,
            set(schemas.tools),
            max_turns=config.max_agent_turns,
            task_id=task_id,
            temperature=0.0 if session.split == "eval" else config.agent_temperature,
            max_tokens=config.max_token_length,
            extra_body=config.extra_body,
        )

    def _chat(self, session: RolloutSession) -> ChatServer:
        """Servers of atroposlib's type `openai` answer chats only: their models are not those that are trained."""
        if isinstance(self.server.servers[0], OpenAIServer):
            return ProviderChat(session, partial(self.server.chat_completion, split=session.split))
        return SessionChat(session)

    def _aside(self) -> Self:
        """A copy for graders of evaluations: what they append to the environment's lists is not training's."""
        aside = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict | set | deque):
                setattr(aside, name, copy.copy(value))
        return aside

    def worth(self, score: float) -> float:
        return float(score)

    async def evaluate(self, *_args: Any, **_kwargs: Any) -> Evaluation:
        """The whole loop with tools at temperature 0 on held-out items; the mean reward is `eval/mean_reward`.

        With `data_dir_to_save_evals` the result and all samples are written there. Rollouts that failed are left out.
        """
        if not self.held_out_items():
            raise ConfigError(f"{type(self).__name__} has no held-out items: define held_out_items(), or evaluate()")
        begun = time.time()
        played = await self.held_out_rollouts()
        evaluation = evaluation_of(played, self.worth, MEAN_REWARD)
        if self.config.data_dir_to_save_evals is not None:
            samples = [_sample(each.item, rollout) for each in played for rollout in each.rollouts]
            await self.evaluate_log(
                evaluation.to_metrics(), samples=samples, start_time=begun, end_time=time.time(),
                generation_parameters={"temperature": 0.0, "max_agent_turns": self.config.max_agent_turns},
            )  # fmt: skip
        return evaluation

    async def process_manager(self) -> None:
        """BaseEnv's, which writes groups as lines of JSON; and a page of them, with the calls of tools.

        Ends the program if no rollout of a group worked. What was written until then stays.
        """
        self.config.use_wandb = self.config.use_wandb and has_wandb_key()
        try:
            await super().process_manager()
        except IncompleteGroupError as error:
            raise SystemExit(f"no rollout of a group worked: {error}") from None
        finally:
            groups = Path(self.config.data_path_to_save_groups)
            print(f"The groups are in {groups}, and {write_page(groups)} shows them.")  # noqa: T201 -- a command's answer
            await self.close()

    async def _run_evaluate(self) -> None:
        """BaseEnv's, which writes no results without a folder for them."""
        self.config.data_dir_to_save_evals = self.config.data_dir_to_save_evals or f"{RESULTS}/{self.name or 'agent'}"
        try:
            await super()._run_evaluate()
        finally:
            await self.close()
        print(f"The results are in {self.config.data_dir_to_save_evals}.")  # noqa: T201 -- a command's answer

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """With `train/mean_reward`, and figures of agents."""
        rewards = {"train/mean_reward": sum(self._scores) / len(self._scores)} if self._scores else {}
        await super().wandb_log({**rewards, **(wandb_metrics or {})})


def _bridged(method: Callable[..., Coroutine[object, object, T]]) -> Callable[..., Coroutine[object, object, T]]:
    @wraps(method)
    async def bridged(*args: object, **kwargs: object) -> T:
        return await Bridged(method(*args, **kwargs))

    return bridged


def _sample(item: Any, rollout: Rollout) -> dict[str, Any]:
    return {"item": repr(item), "messages": list(rollout.messages), "reward": rollout.score}


def time_each_rollout(config: AgentConfig) -> None:
    """Where rollouts wait for sandboxes, the time of a group would pass meanwhile. So `worker_timeout` bounds no group
    there: if it is not BaseEnv's default, whoever set it, each rollout has the smaller one of it and `rollout_seconds`,
    from when it has its sandbox.
    """
    default = AgentConfig.model_fields["worker_timeout"].default
    limit, config.worker_timeout = config.worker_timeout, NO_LIMIT
    if limit != default and 0 < limit < config.rollout_seconds:
        logger.info("each rollout has env.worker_timeout (%g s), from when it has its sandbox", limit)
        config.rollout_seconds = limit


def with_key(servers: object) -> object:
    """A server without a key gets that of OpenAI's usual variable. Servers of one's own often want none, but the client
    must have one.
    """
    if not isinstance(servers, list):
        return servers
    key = os.environ.get("OPENAI_API_KEY") or "none"
    return [each if each.api_key else each.model_copy(update={"api_key": key}) for each in servers]


def has_wandb_key() -> bool:
    """Whether W&B would take a run, or was told not to. Without one it asks for a key, and nobody may be there."""
    return wandb.api.api_key is not None or os.environ.get(WANDB_MODE, "online") != "online"
