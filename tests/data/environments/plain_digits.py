"""An environment as people write them against atroposlib 0.4.0: nothing in here knows of this project.

It forwards no logprobs, uses the default collect_trajectories, and hands its evaluation to the next wandb_log.
"""

import random

import wandb
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataItem


class PlainDigits(BaseEnv):
    """Sort three digits."""

    name = "plain_digits"

    def __init__(self, config, server_configs, slurm=False, testing=False):
        super().__init__(config, server_configs, slurm, testing)
        self.percent_correct_buffer = []
        self.eval_metrics = []

    @classmethod
    def config_init(cls):
        env_config = BaseEnvConfig(
            tokenizer_name="NousResearch/DeepHermes-3-Llama-3-3B-Preview",
            group_size=8,
            use_wandb=True,
            rollout_server_url="http://localhost:8000",
            total_steps=1000,
            wandb_name="plain_digits",
        )
        server_configs = [
            APIServerConfig(model_name="some/model", base_url="http://localhost:9001/v1", num_requests_for_eval=32),
            APIServerConfig(model_name="some/model", base_url="http://localhost:9002/v1", num_requests_for_eval=32),
        ]
        return env_config, server_configs

    async def setup(self):
        self.random = random.Random(0)
        wandb.define_metric("eval/percent_correct", summary="max")

    async def get_next_item(self):
        return tuple(self.random.randrange(10) for _ in range(4))

    async def collect_trajectory(self, item):
        content, node = await self._answer(item)
        score = 1.0 if content == "".join(map(str, sorted(item))) else 0.0
        self.percent_correct_buffer.append(score)
        return ScoredDataItem(tokens=node.tokens, masks=node.masked_tokens, scores=score), []

    async def evaluate(self, *args, **kwargs):
        right = 0
        for digit in range(8):
            content, _ = await self._answer((digit, 0, 5, 1))
            right += content == "".join(map(str, sorted((digit, 0, 5, 1))))
        self.eval_metrics.append(("eval/percent_correct", right / 8))

    async def wandb_log(self, wandb_metrics=None):
        wandb_metrics = wandb_metrics or {}
        if self.percent_correct_buffer:
            share = sum(self.percent_correct_buffer) / len(self.percent_correct_buffer)
            wandb_metrics["train/percent_correct"] = share
        self.percent_correct_buffer = []
        for name, value in self.eval_metrics:
            wandb_metrics[name] = value
        self.eval_metrics = []
        table = wandb.Table(columns=["text"])
        table.add_data("a row")
        wandb_metrics["train/table"] = table
        await super().wandb_log(wandb_metrics)

    async def _answer(self, item):
        messages = [{"role": "user", "content": "sort " + " ".join(map(str, item))}]
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            completion = await managed.chat_completion(messages=messages, n=1, max_tokens=8, temperature=1.0)
            node = managed.get_state()["nodes"][0]
        return completion.choices[0].message.content, node


if __name__ == "__main__":
    PlainDigits.cli()
