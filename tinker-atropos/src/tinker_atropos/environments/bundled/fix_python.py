"""An agent in a sandbox: a test fails, and the agent makes it pass."""

import uuid
from collections.abc import Mapping, Sequence

from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.environments.agents.agent_result import AgentResult
from tinker_atropos.environments.agents.rewards import weighted
from tinker_atropos.environments.agents.tool_context import ToolContext
from tinker_atropos.environments.bundled import broken_programs

PROMPT = (
    "The tests in test_{name}.py fail: there is one mistake in {name}.py. Find it and fix it, and leave the tests as "
    "they are. `python -m unittest` runs them. Say what was wrong when they pass."
)


class FixPython(AgentEnvironment[broken_programs.BrokenProgram]):
    """Fix a small Python program, so that its tests pass."""

    name = "fix_python"

    @classmethod
    def config_init(cls) -> tuple[AgentConfig, list[object]]:
        return AgentConfig(
            tokenizer_name="bundled",
            enabled_toolsets=["terminal", "files"],
            max_agent_turns=10,
            group_size=8,
            batch_size=32,
            total_steps=100,
            max_token_length=8192,
        ), []

    def training_items(self) -> Sequence[broken_programs.BrokenProgram]:
        return broken_programs.split().training

    def held_out_items(self) -> Sequence[broken_programs.BrokenProgram]:
        return broken_programs.split().held_out

    def format_prompt(self, item: broken_programs.BrokenProgram) -> str:
        return PROMPT.format(name=item.name)

    def question(self, item: broken_programs.BrokenProgram) -> str:
        return item.broken  # the prompt does not tell items apart

    async def prepare(self, item: broken_programs.BrokenProgram, ctx: ToolContext) -> None:
        for path, content in broken_programs.files(item).items():
            ctx.write_file(path, content)

    async def compute_reward(
        self, item: broken_programs.BrokenProgram, result: AgentResult, ctx: ToolContext
    ) -> Mapping[str, float]:
        mark = uuid.uuid4().hex  # unknown to the program, which may print and exit as it likes
        ctx.write_file(f"test_{item.name}.py", broken_programs.unit_tests(item, mark))
        tests = ctx.terminal(f"python -m unittest test_{item.name}", timeout=30)
        share = broken_programs.passed(item, tests["output"], mark)
        finished = result.finished_naturally
        return weighted({"fixed": (0.5, share >= 1), "tests": (0.375, share), "finished": (0.125, finished)})
