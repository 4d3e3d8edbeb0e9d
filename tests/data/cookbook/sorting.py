"""Train on the bundled task as users of tinker-cookbook do, with its RL loop: `sorting.py LOG_FOLDER STEPS [async]`.

Address and key come from TINKER_BASE_URL and TINKER_API_KEY. A log folder with checkpoints is resumed.
"""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

import chz
from tinker_cookbook import renderers, tokenizer_utils
from tinker_cookbook.rl import train
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.environments.bundled import digits

GROUPS, GROUP_SIZE = 8, 8
RENDERER = "qwen3_instruct"


class SortEnv(ProblemEnv):
    def __init__(self, item: digits.Item, renderer: renderers.Renderer) -> None:
        super().__init__(renderer, format_coef=0.0)
        self.item = item

    def get_question(self) -> str:
        return digits.prompt(self.item)

    def check_answer(self, sample_str: str) -> bool:
        return sample_str.strip() == digits.answer(self.item)

    def check_format(self, sample_str: str) -> bool:
        return bool(sample_str)

    def get_reference_answer(self) -> str:
        return digits.answer(self.item)


class SortDataset(RLDataset):
    def __init__(self, renderer: renderers.Renderer, steps: int) -> None:
        self.renderer, self.steps = renderer, steps

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        items = digits.split().training[GROUPS * index : GROUPS * (index + 1)]
        return [ProblemGroupBuilder(partial(SortEnv, item, self.renderer), GROUP_SIZE) for item in items]

    def __len__(self) -> int:
        return self.steps


@chz.chz
class SortDatasetBuilder(RLDatasetBuilder):
    tokenizer: str
    steps: int

    async def __call__(self) -> tuple[RLDataset, None]:
        tokenizer = tokenizer_utils.get_tokenizer(self.tokenizer)
        return SortDataset(renderers.get_renderer(RENDERER, tokenizer=tokenizer), self.steps), None


def main(log_folder: str, steps: int, asynchronous: str = "") -> None:
    """`asynchronous`: with the defaults of its AsyncConfig, which train with stable_reinforce."""
    model = str(resolve_tokenizer("bundled"))  # a folder: no hub knows `bundled`
    asyncio.run(
        train.main(
            train.Config(
                learning_rate=2e-3,
                dataset_builder=SortDatasetBuilder(tokenizer=model, steps=steps),
                model_name=model,
                recipe_name="sorting",
                renderer_name=RENDERER,
                max_tokens=8,
                log_path=log_folder,
                lora_rank=8,
                save_every=2,
                eval_every=0,
                num_groups_to_log=0,
                compute_post_kl=not asynchronous,
                async_config=train.AsyncConfig(max_steps_off_policy=1, groups_per_batch=GROUPS)
                if asynchronous
                else None,
            )
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
