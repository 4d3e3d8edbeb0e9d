"""The fields of an environment with an agent."""

import logging
from typing import Any, Final, Literal

from pydantic import Field

from tinker_atropos.environments.recorded_environment import SessionConfig

logger = logging.getLogger(__name__)

NO_LIMIT: Final = -1


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
    agent_temperature: float = Field(
        default=1.0, ge=0, description="Temperature of training rollouts; evaluations sample at 0."
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
