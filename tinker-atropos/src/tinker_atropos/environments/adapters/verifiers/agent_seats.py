"""Which model plays each agent of an environment: the policy, in this process, and never in a vendor's cloud.

verifiers runs agents in a cloud unless told otherwise, and most tasksets leave the harness to a default that runs
programs. Here the runtime is always this machine, and an agent is the policy's chat. A taskset that needs more (a
program of its own, tools, a container) is refused, unless RL_SANDBOX=1 says that this process is in a sandbox: what the
policy writes is then run as a program here.

The harness of such an agent is nothing but the policy: each turn is one request, made in this process. verifiers' own
harnesses start a program for each rollout, with an environment that is made at run time: seconds of CPU, and a package
index. What a harness must do is to send its requests through the interception server, which records them.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import aiohttp

from rl_contract.env_vars import RL_SANDBOX
from tinker_atropos.environments.adapters.verifiers.verifiers_config import VerifiersConfig
from tinker_atropos.environments.adapters.verifiers.verifiers_package import (
    default_agent_harness,
    is_sandbox,
    message_to_wire,
    vf,
)
from tinker_atropos.errors import ConfigError

HARNESS_ID: Final = "tinker_atropos_policy_chat"

OVERFLOWS: Final = ("sequence_full", "context_length_exceeded")
"""How the inference server says that a prompt leaves no room for an answer."""

TRUNCATED: Final = "max_total_tokens"
"""verifiers' own word for an episode that has used up its tokens: it is scored as it is."""


class PolicyChatConfig(vf.HarnessConfig):  # type: ignore[misc]  # not typed here: it is not installed beside mypy
    """It has no fields of its own."""


class PolicyChat(vf.Harness[PolicyChatConfig]):  # type: ignore[misc]  # as above
    """One answer of the policy for each turn of its environment."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    _session: ClassVar[aiohttp.ClientSession | None] = None

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls) -> AsyncIterator[None]:
        """All rollouts share their connections while the block runs."""
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)  # episodes have a limit
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            cls._session = session
            try:
                yield
            finally:
                cls._session = None

    async def launch(
        self, ctx: Any, trace: Any, _runtime: Any, endpoint: str, secret: str, _mcp_urls: Any, data: Any
    ) -> Any:
        """Without room for an answer the episode is over, and is scored as it is."""
        assert self._session is not None, "the environment is set up"
        body = {"model": ctx.model, "messages": self._messages(data)}
        headers = {"Authorization": f"Bearer {secret}"}
        async with self._session.post(f"{endpoint}/chat/completions", json=body, headers=headers) as response:
            said = await response.text()
        if response.ok:
            return vf.ProgramResult(0, "", "")
        if any(each in said for each in OVERFLOWS):
            trace.stop(TRUNCATED)
        return vf.ProgramResult(1, "", said)

    def _messages(self, data: object) -> list[dict[str, object]]:
        system, prompt = self.resolve_prompt(data)
        first = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            return [*first, {"role": "user", "content": prompt}]
        return [*first, *map(message_to_wire, prompt or [])]


__all__ = ["PolicyChat"]

# Harnesses are found by their modules' names, and only at the top level.
sys.modules.setdefault(HARNESS_ID, sys.modules[__name__])


RUNTIME: Final = {"type": "subprocess"}
CHATS: Final = frozenset({"null", HARNESS_ID})
"""Harnesses that do what the policy's chat does."""

DEFAULT: Final = "bash"
"""What verifiers takes where neither the taskset nor a seat names a harness. Only text is needed then."""


def seated(env_config_class: Any, taskset: str, config: VerifiersConfig) -> dict[str, dict[str, Any]]:
    """The config of each agent: the user's values over the taskset's own, with runtime and harness set.

    Raises ConfigError if a seat demands a program.
    """
    declared = {
        name: field.default
        for name, field in env_config_class.model_fields.items()
        if isinstance(field.default, vf.AgentConfig)
    }
    return {name: _seat(name, seat, taskset, config) for name, seat in declared.items()}


def _seat(name: str, declared: Any, taskset: str, config: VerifiersConfig) -> dict[str, Any]:
    given = config.env_config.get(name, {})
    if not isinstance(given, dict):
        raise ConfigError(f"env.env_config.{name} is {given!r}: it must be a mapping with fields of the agent")
    seat = dict(given)
    if seat.get("runtime", RUNTIME) != RUNTIME:
        raise ConfigError(
            f"env.env_config.{name}.runtime is {seat['runtime']!r}: agents run in this process; leave it out"
        )
    asked = given.get("harness")
    demanded = (asked or {}).get("id") if isinstance(asked, dict) else asked
    demanded = demanded or (declared.harness.id if declared.harness else _of_taskset(taskset))
    if demanded is None or demanded in CHATS:
        seat["harness"] = {"id": HARNESS_ID}
    elif not is_sandbox():
        raise ConfigError(refusal(f"agent {name!r} of verifiers/{taskset} needs the harness {demanded!r}"))
    elif asked is None:
        seat["harness"] = {"id": demanded}
    if declared.max_turns is None:
        seat.setdefault("max_turns", config.max_turns)
    return {**seat, "runtime": RUNTIME}


def _of_taskset(taskset: str) -> str | None:
    """The harness that the taskset brings along; None if it leaves that to verifiers."""
    harness = str(default_agent_harness(taskset).id)
    return None if harness == DEFAULT else harness


def refusal(demand: str) -> str:
    return (
        f"{demand}, which starts programs for each rollout: it runs only in a sandbox. Set {RL_SANDBOX}=1 if "
        f"this environment is in one, or choose a taskset of text"
    )


def check_seats(env: Any, taskset: str, *, greedy: bool) -> None:
    """What only the loaded environment shows. Raises ConfigError for a container, for tools outside of a sandbox, and
    if evaluations are to be `greedy` for an agent with a temperature of its own, which overrides the episode's.
    """
    for name, agent in env._agent_specs.items():  # noqa: SLF001 -- verifiers keeps them nowhere else
        if agent.runtime.type != RUNTIME["type"]:
            raise ConfigError(f"agent {name!r} of verifiers/{taskset} would run in {agent.runtime.type!r}, not here")
        if greedy and agent.client is None and agent.sampling and "temperature" in agent.sampling.model_fields_set:
            raise ConfigError(
                f"env.eval_greedy is true, and agent {name!r} of verifiers/{taskset} has a temperature of its own "
                f"({agent.sampling.temperature}): leave out one of them"
            )
    task_class = type(env.taskset).task_type()
    if task_class.NEEDS_CONTAINER:
        raise ConfigError(f"the tasks of verifiers/{taskset} need a container each: they cannot be played here")
    tools = [*env.taskset.toolsets(env.taskset.config), *task_class.toolsets(env.taskset.config.task)]
    if tools and not is_sandbox():
        raise ConfigError(refusal(f"verifiers/{taskset} has tools, and needs a harness that calls them"))


def check_task(task: Any, taskset: str) -> None:
    """Raises ConfigError for a task that no chat can play: in an image, or with pictures."""
    if task.data.image is not None:
        raise ConfigError(
            f"the tasks of verifiers/{taskset} run in images of their own ({task.data.image}): they cannot be played "
            f"here"
        )
    prompt = task.data.prompt
    parts = (
        [part for message in prompt if isinstance(message.content, list) for part in message.content]
        if isinstance(prompt, list)
        else []
    )
    if any(getattr(part, "type", "text") != "text" for part in parts):
        raise ConfigError(f"the prompts of verifiers/{taskset} have pictures, and the policy is trained on text only")
