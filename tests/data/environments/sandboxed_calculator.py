"""The bundled agent with another calculator: a shell in the sandbox of its rollout. For tests of a real cluster."""

from tinker_atropos.environments.bundled import arithmetic
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.bundled.calculator_agent import CalculatorAgent
from tinker_atropos.sandboxes.sandbox import Command


def shell_compute(sandbox, expression):
    if not expression.replace(" ", "").strip("0123456789+-*"):
        ended = sandbox.run(Command(f"echo $(({expression}))", timeout=20))
        return ended.output.strip()
    return f"{expression} is not an expression"


class SandboxedCalculator(CalculatorAgent):
    """Answer `what is 37 * 48?` by calling a calculator, and repeat its result."""

    name = "sandboxed_calculator"

    def tools(self):
        return [
            Tool(
                arithmetic.TOOL_NAME,
                arithmetic.TOOL_DESCRIPTION,
                arithmetic.TOOL_PARAMETERS,
                function=shell_compute,
                in_sandbox=True,
            )
        ]
