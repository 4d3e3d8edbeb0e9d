"""Other people's agents as they are: `python agents_program.py mini-swe-agent|openai-agents PROMPT`, by a Python with
both. Each finds its model in the usual environment variables, and prints its answer as the last line.
"""

import os
import sys
from pathlib import Path

MODEL = os.environ["OPENAI_MODEL"]


def mini_swe_agent(prompt: str) -> str:
    import yaml
    from minisweagent import package_dir
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    config = yaml.safe_load(Path(package_dir / "config" / "mini.yaml").read_text())["agent"]
    told = {name: config[name] for name in ("system_template", "instance_template")}
    agent = DefaultAgent(LitellmModel(model_name=f"openai/{MODEL}"), LocalEnvironment(), **told)
    return str(agent.run(prompt)["submission"])


def openai_agents(prompt: str) -> str:
    import openai
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool

    @function_tool
    def sort_digits(digits: str) -> str:
        """Sort digits."""
        return "".join(sorted(digits))

    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=openai.AsyncOpenAI())
    agent = Agent(name="sorter", instructions="Sort.", model=model, tools=[sort_digits])
    return str(Runner.run_sync(agent, prompt).final_output)


if __name__ == "__main__":
    print(f"\n{globals()[sys.argv[1].replace('-', '_')](sys.argv[2])}")
