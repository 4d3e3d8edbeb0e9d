"""A conversation as people write them against atroposlib 0.4.0: nothing in here knows of this project.

It goes through the ManagedServer turn by turn, builds its groups itself, and forwards no logprobs. Its evaluation asks
the server for chat completions, and hands its result to wandb_log.
"""

import random
from typing import List, Optional, Tuple

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.type_definitions import Item


class PlainConversation(BaseEnv):
    """Sort four digits; "again" asks once more."""

    name = "plain_conversation"

    def __init__(self, config, server_configs, slurm=False, testing=False):
        super().__init__(config, server_configs, slurm, testing)
        self.percent_correct_buffer = list()
        self.eval_metrics = list()

    @classmethod
    def config_init(cls) -> Tuple[BaseEnvConfig, List[APIServerConfig]]:
        env_config = BaseEnvConfig(
            tokenizer_name="NousResearch/DeepHermes-3-Llama-3-3B-Preview",
            group_size=8,
            use_wandb=True,
            rollout_server_url="http://localhost:8000",
            total_steps=1000,
            batch_size=16,
            steps_per_eval=100,
            max_token_length=2048,
            wandb_name="plain_conversation",
        )
        server_configs = [
            APIServerConfig(
                model_name="NousResearch/DeepHermes-3-Llama-3-3B-Preview",
                base_url="http://localhost:9001/v1",
                api_key="x",
                num_requests_for_eval=256,
            ),
        ]
        return env_config, server_configs

    async def setup(self):
        self.iter = 0
        self.random = random.Random(1)

    async def get_next_item(self):
        self.iter += 1
        return {"digits": [self.random.randrange(10) for _ in range(4)]}

    async def collect_trajectories(self, item: Item) -> Tuple[Optional[ScoredDataGroup], List[Item]]:
        scores = ScoredDataGroup(tokens=[], masks=[], scores=[])
        right = "".join(str(digit) for digit in sorted(item["digits"]))
        for _ in range(self.config.group_size):
            messages = [{"role": "user", "content": "sort " + " ".join(map(str, item["digits"]))}]
            async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
                for turn in range(2):
                    completion = await managed.chat_completion(messages=messages, n=1, max_tokens=8, temperature=1.0)
                    answer = completion.choices[0].message.content
                    messages.append({"role": "assistant", "content": answer})
                    if answer == right:
                        break
                    messages.append({"role": "user", "content": messages[0]["content"]})
                nodes = managed.get_state()["nodes"]
            scores["tokens"].append(nodes[-1].tokens)
            scores["masks"].append(nodes[-1].masked_tokens)
            scores["scores"].append(1.0 if answer == right else -1.0)
        for score in scores["scores"]:
            self.percent_correct_buffer.append(max(score, 0))
        if all([scores["scores"][0] == score for score in scores["scores"]]):
            return None, []
        return scores, []

    async def evaluate(self, *args, **kwargs):
        right = []
        for digit in range(6):
            digits = [digit, 9, 5, 1]
            completion = await self.server.chat_completion(
                messages=[{"role": "user", "content": "sort " + " ".join(map(str, digits))}],
                n=2,
                max_tokens=self.config.max_token_length,
                temperature=1.0,
                split="eval",
            )
            for choice in completion.choices:
                right.append(choice.message.content == "".join(map(str, sorted(digits))))
        self.eval_metrics.append(("eval/percent_correct", sum(right) / len(right)))

    async def wandb_log(self, wandb_metrics=None):
        if wandb_metrics is None:
            wandb_metrics = {}
        try:
            wandb_metrics["train/percent_correct"] = sum(self.percent_correct_buffer) / len(self.percent_correct_buffer)
        except ZeroDivisionError:
            pass
        self.percent_correct_buffer = list()
        for item in self.eval_metrics:
            wandb_metrics[item[0]] = item[1]
        self.eval_metrics = list()
        await super().wandb_log(wandb_metrics)


if __name__ == "__main__":
    PlainConversation.cli()
