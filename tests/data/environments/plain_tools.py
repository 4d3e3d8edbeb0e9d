"""A task of one answer as most people write it against atroposlib 0.4.0: nothing in here knows of this project.

It asks for completions of a prompt's text, makes tokens of the text again, samples at temperature 0.8, looks for a
cluster unless told otherwise, and divides by the number of rollouts in wandb_log. The file starts one of its classes.
"""

import random
from typing import Dict, List, Optional

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, EvalHandlingEnum, ScoredDataGroup
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer
from pydantic import Field


class PlainToolsConfig(BaseEnvConfig):
    length: int = Field(default=4, description="How many digits there are to sort.")


class PlainTools(BaseEnv):
    env_config_cls = PlainToolsConfig

    def __init__(self, config: PlainToolsConfig, server_configs: List[APIServerConfig], slurm=True, testing=False):
        super().__init__(config, server_configs, slurm, testing)
        self.percent_correct_buffer = list()
        self.eval_metrics = list()

    @classmethod
    def config_init(cls):
        env_config = PlainToolsConfig(
            tokenizer_name="NousResearch/DeepHermes-3-Llama-3-8B-Preview",
            group_size=16,
            max_num_workers_per_node=16,
            rollout_server_url="http://localhost:8000",
            total_steps=2000,
            batch_size=1024,
            steps_per_eval=25,
            max_token_length=1024 * 16,
            wandb_name="plain_tools",
            eval_handling=EvalHandlingEnum.LIMIT_TRAIN,
            eval_limit_ratio=0.1,
            min_batch_allocation=0.1,
        )
        return env_config, APIServerConfig(model_name="some/model", base_url="http://localhost:9004/v1", api_key="x")

    async def setup(self):
        self.random = random.Random(2)
        self.iter = 0

    def save_checkpoint(self, step, data=None):
        super().save_checkpoint(step, {"iter": self.iter})

    async def get_next_item(self):
        self.iter += 1
        return [self.random.randrange(10) for _ in range(self.config.length)]

    async def collect_trajectories(self, item):
        messages = [{"role": "user", "content": "sort " + " ".join(map(str, item))}]
        completions = await self.server.completion(
            prompt=self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False),
            n=self.config.group_size,
            max_tokens=1024 * 15,
            temperature=0.8,
        )
        to_score = [
            (messages + [{"role": "assistant", "content": choice.text}], item, choice.finish_reason)
            for choice in completions.choices
        ]
        return await self.score(to_score), []

    async def score(self, rollout_group_data) -> Optional[ScoredDataGroup]:
        scores = ScoredDataGroup(tokens=[], masks=[], scores=[])
        random.shuffle(rollout_group_data)
        for messages, item, finish_reason in rollout_group_data:
            out_dict = tokenize_for_trainer(self.tokenizer, messages, finish_reason=finish_reason)
            scores["tokens"].append(out_dict["tokens"])
            scores["masks"].append(out_dict["masks"])
            scores["scores"].append(1.0 if messages[-1]["content"] == "".join(map(str, sorted(item))) else -1.0)
        self.percent_correct_buffer += [max(score, 0) for score in scores["scores"]]
        if all(score == scores["scores"][0] for score in scores["scores"]):
            return None
        return scores

    async def evaluate(self, *args, **kwargs):
        right = []
        for digit in range(10):
            completion = await self.server.completion(
                prompt=f"<|im_start|>user\nsort {digit} 9 5 1<|im_end|>\n<|im_start|>assistant\n",
                n=1,
                max_tokens=1024 * 15,
                temperature=1.0,
            )
            right.append(completion.choices[0].text == "".join(sorted(f"{digit}951")))
        self.eval_metrics.append(("eval/percent_correct", sum(right) / len(right)))

    async def wandb_log(self, wandb_metrics: Dict):
        wandb_metrics["train/percent_correct"] = sum(self.percent_correct_buffer) / len(self.percent_correct_buffer)
        self.percent_correct_buffer = list()
        for item in self.eval_metrics:
            wandb_metrics[item[0]] = item[1]
        self.eval_metrics = list()
        await super().wandb_log(wandb_metrics)


class HarderTools(PlainTools):
    """Not the one that this file starts."""


if __name__ == "__main__":
    PlainTools.cli()
