"""hermes-agent's name for what a grader does in a rollout's sandbox."""

from tinker_atropos.environments.agents.tool_context import ToolContext

__all__ = ["ToolContext"]
