"""hermes-agent's names for our base class: environments that were written for it import them from here."""

from pydantic import Field

from tinker_atropos.environments.agent_environment import AgentConfig as _AgentConfig
from tinker_atropos.environments.agent_environment import AgentEnvironment as HermesAgentBaseEnv

__all__ = ["HermesAgentBaseEnv", "HermesAgentEnvConfig"]


class HermesAgentEnvConfig(_AgentConfig):
    """With fields that only an author's `setup` reads."""

    dataset_name: str | None = Field(default=None, description="A data set that the environment loads.")
    dataset_split: str = Field(default="train", description="Its split.")
    prompt_field: str = Field(default="prompt", description="Its column with the prompt.")
