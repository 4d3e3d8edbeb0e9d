"""An agent with a tool of its own. The bundled model learns to use it."""

from collections.abc import Mapping, Sequence

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.tool_context import ToolContext
from tinker_atropos.environments.bundled import arithmetic

CALCULATOR = Tool(
    arithmetic.TOOL_NAME, arithmetic.TOOL_DESCRIPTION, arithmetic.TOOL_PARAMETERS, function=arithmetic.compute
)


class CalculatorAgent(AgentEnvironment[arithmetic.Item]):
    """Answer `what is 37 * 48?` by calling a calculator, and repeat its result."""

    name = "calculator_agent"

    @classmethod
    def config_init(cls) -> tuple[AgentConfig, list[object]]:
        return AgentConfig(
            tokenizer_name="bundled",
            enabled_toolsets=[],  # it needs no sandbox
            max_agent_turns=3,
            group_size=8,
            batch_size=32,
            total_steps=10,
            max_token_length=512,
        ), []

    def tools(self) -> Sequence[Tool]:
        return [CALCULATOR]

    def training_items(self) -> Sequence[arithmetic.Item]:
        return arithmetic.split().training

    def held_out_items(self) -> Sequence[arithmetic.Item]:
        return arithmetic.split().held_out

    def format_prompt(self, item: arithmetic.Item) -> str:
        return arithmetic.question(item)

    async def compute_reward(
        self,
        item: arithmetic.Item,
        result: AgentResult,
        ctx: ToolContext,  # noqa: ARG002 -- nothing is left in a sandbox to look at
    ) -> Mapping[str, float]:
        is_right = arithmetic.is_right(item, result.last_answer)
        return {"answer": 0.75 * is_right, "called": 0.25 * (arithmetic.TOOL_NAME in result.called_tools)}
