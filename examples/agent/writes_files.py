"""An agent with tools, and a grader in its sandbox; a program, too: `python writes_files.py process|evaluate`."""

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.tool_context import ToolContext


class WritesFiles(AgentEnvironment[str]):
    """Write a file with a text."""

    name = "writes_files"

    @classmethod
    def config_init(cls) -> tuple[AgentConfig, list[object]]:
        return AgentConfig(
            tokenizer_name="bundled", enabled_toolsets=["terminal", "files"], max_agent_turns=8, max_token_length=8192
        ), []

    def training_items(self) -> list[str]:
        return [f"file{number}.txt" for number in range(100)]

    def held_out_items(self) -> list[str]:
        return [f"held-out{number}.txt" for number in range(20)]

    def format_prompt(self, item: str) -> str:
        return f"Write the text 'hello' to the file {item}."

    async def compute_reward(self, item: str, result: AgentResult, ctx: ToolContext) -> dict[str, float]:
        right = ctx.terminal(f"cat {item}")["output"].strip() == "hello"
        return {"right": 0.9 * right, "quick": 0.1 * (result.turns_used <= 3)}


if __name__ == "__main__":
    WritesFiles.cli()
