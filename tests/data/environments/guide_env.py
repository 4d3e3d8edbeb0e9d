"""Written after the guide for hermes-agent's environments, as its users write theirs."""

import os
import random
import time
import uuid
from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import Field

from environments.agent_loop import AgentResult, HermesAgentLoop
from environments.hermes_base_env import HermesAgentBaseEnv, HermesAgentEnvConfig
from environments.tool_context import ToolContext

BUILTIN_SAMPLES = [{"name": f"file{index}.txt", "text": f"text {index}"} for index in range(60)]


class FileTaskConfig(HermesAgentEnvConfig):
    eval_size: int = Field(default=20, description="How many items to evaluate.")
    efficiency_bonus: float = Field(default=0.2, description="For few turns.")


class FileTaskEnv(HermesAgentBaseEnv):
    """Write a file with a text."""

    name = "file-task"
    env_config_cls = FileTaskConfig
    default_toolsets = ["terminal", "file"]

    @classmethod
    def config_init(cls):
        return FileTaskConfig(
            enabled_toolsets=["terminal", "file"],
            max_agent_turns=6,
            agent_temperature=1.0,
            system_prompt="You are a helpful assistant with tools.",
            terminal_backend="local",
            tool_call_parser="hermes",
            group_size=2,
            total_steps=4,
            steps_per_eval=2,
            max_token_length=1024,
            tokenizer_name="bundled",
            use_wandb=False,
            ensure_scores_are_not_same=False,
        ), [
            APIServerConfig(
                base_url="http://localhost:8001/v1",
                model_name="bundled",
                server_type="sglang",
                api_key=os.getenv("OPENROUTER_API_KEY", "x"),
                health_check=False,
            )
        ]

    async def setup(self):
        self._items = list(BUILTIN_SAMPLES)
        if self.config.dataset_name is not None:
            try:
                from datasets import load_dataset

                self._items = [dict(row) for row in load_dataset(self.config.dataset_name, split="test")]
            except Exception as error:
                print(f"{self.config.dataset_name} cannot be loaded ({error}): the built-in samples are used")
        random.Random(0).shuffle(self._items)
        eval_size = max(20, int(len(self._items) * 0.1))
        self._eval_items, self._items = self._items[:eval_size], self._items[eval_size:]
        self._index = 0
        self._reward_buffer = []

    async def get_next_item(self):
        item = self._items[self._index % len(self._items)]
        self._index += 1
        return item

    def format_prompt(self, item) -> str:
        return f"Write the text {item['text']!r} to the file {item['name']}."

    async def compute_reward(self, item, result: AgentResult, ctx: ToolContext) -> float:
        check = ctx.terminal(f"cat {item['name']}", timeout=20)
        correct = float(check["exit_code"] == 0 and check["output"] == item["text"])
        tools_used = [
            call.get("function", {}).get("name", "")
            for message in result.messages
            if message.get("role") == "assistant"
            for call in message.get("tool_calls") or []
            if isinstance(call, dict)
        ]
        efficiency = self.config.efficiency_bonus if result.turns_used <= 3 else 0.0
        reward = min(1.0, max(0.0, 0.6 * correct + 0.2 * bool(tools_used) + efficiency))
        self._reward_buffer.append(reward)
        return reward

    async def evaluate(self, *args, **kwargs):
        start_time = time.time()
        tools, valid_names = self._resolve_tools_for_group()
        samples: list[dict[str, Any]] = []
        buffered = len(self._reward_buffer)
        for item in self._eval_items[: self.config.eval_size]:
            task_id = str(uuid.uuid4())
            messages = [
                {"role": "system", "content": self.config.system_prompt},
                {"role": "user", "content": self.format_prompt(item)},
            ]
            agent = HermesAgentLoop(
                server=self.server,
                tool_schemas=tools,
                valid_tool_names=valid_names,
                max_turns=self.config.max_agent_turns,
                task_id=task_id,
                temperature=0.0,
                max_tokens=self.config.max_token_length,
                extra_body=self.config.extra_body,
            )
            result = await agent.run(messages)
            ctx = ToolContext(task_id)
            try:
                reward = await self.compute_reward(item, result, ctx)
            finally:
                ctx.cleanup()
            samples.append({"prompt": self.format_prompt(item), "turns": result.turns_used, "reward": reward})
        del self._reward_buffer[buffered:]
        metrics = {"eval/mean_reward": sum(sample["reward"] for sample in samples) / len(samples)}
        await self.evaluate_log(metrics=metrics, samples=samples, start_time=start_time, end_time=time.time())

    async def wandb_log(self, wandb_metrics=None):
        wandb_metrics = wandb_metrics or {}
        if self._reward_buffer:
            wandb_metrics["train/mean_reward"] = sum(self._reward_buffer) / len(self._reward_buffer)
            self._reward_buffer.clear()
        await super().wandb_log(wandb_metrics)


if __name__ == "__main__":
    FileTaskEnv.cli()
