"""hermes-agent's names for our agent loop."""

from tinker_atropos.environments.agents.agent_loop import AgentLoop as HermesAgentLoop
from tinker_atropos.environments.agents.agent_result import AgentResult, ToolError

__all__ = ["AgentResult", "HermesAgentLoop", "ToolError"]
