"""Which model plays each agent of an environment: the policy, in this process, and never in a vendor's cloud.

verifiers runs agents in a cloud unless told otherwise, and most tasksets leave the harness to a default that runs
programs. Here the runtime is always this machine, and an agent is the policy's chat. A taskset that needs more (a
program of its own, tools, a container) is refused, unless RL_SANDBOX=1 says that this process is in a sandbox: what the
policy writes is then run as a program here.
"""

from typing import Any, Final

from tinker_atropos.environments.adapters.verifiers.policy_chat import HARNESS_ID
from tinker_atropos.environments.adapters.verifiers.verifiers_config import VerifiersConfig
from tinker_atropos.environments.adapters.verifiers.verifiers_package import (
    SANDBOX_VARIABLE,
    default_agent_harness,
    is_sandbox,
    vf,
)
from tinker_atropos.errors import ConfigError

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
        f"{demand}, which starts programs for each rollout: it runs only in a sandbox. Set {SANDBOX_VARIABLE}=1 if "
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
