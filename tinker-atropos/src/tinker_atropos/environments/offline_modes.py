"""What a file of an environment does by itself: `python my_env.py process` makes data, `evaluate` measures a model."""

import os
from abc import ABC
from pathlib import Path
from typing import Any, Final

import wandb

from tinker_atropos.environments.agents.rollout_page import write_page
from tinker_atropos.environments.base import Item
from tinker_atropos.environments.recorded_environment import RecordedEnvironment
from tinker_atropos.environments.rollout.failures import IncompleteGroupError

RESULTS: Final = "eval_results"
"""Where `evaluate` writes if it is not told."""


class OfflineModes(RecordedEnvironment[Item], ABC):
    """Of atroposlib's command line, which overrides a config file, which overrides `config_init`."""

    def __init__(self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False) -> None:
        super().__init__(config, with_key(server_configs), slurm, testing)

    async def process_manager(self) -> None:
        """BaseEnv's, which writes groups as lines of JSON; and a page of them, with the calls of tools.

        Ends the program if no rollout of a group worked. What was written until then stays.
        """
        self.config.use_wandb = self.config.use_wandb and has_wandb_key()
        try:
            await super().process_manager()
        except IncompleteGroupError as error:
            raise SystemExit(f"no rollout of a group worked: {error}") from None
        finally:
            groups = Path(self.config.data_path_to_save_groups)
            print(f"The groups are in {groups}, and {write_page(groups)} shows them.")  # noqa: T201 -- a command's answer
            await self.close()

    async def _run_evaluate(self) -> None:
        """BaseEnv's, which writes no results without a folder for them."""
        self.config.data_dir_to_save_evals = self.config.data_dir_to_save_evals or f"{RESULTS}/{self.name or 'agent'}"
        try:
            await super()._run_evaluate()
        finally:
            await self.close()
        print(f"The results are in {self.config.data_dir_to_save_evals}.")  # noqa: T201 -- a command's answer


def with_key(servers: Any) -> Any:
    """A server without a key gets that of OpenAI's usual variable. Servers of one's own often want none, but the client
    must have one.
    """
    if not isinstance(servers, list):
        return servers
    key = os.environ.get("OPENAI_API_KEY") or "none"
    return [each if each.api_key else each.model_copy(update={"api_key": key}) for each in servers]


def has_wandb_key() -> bool:
    """Whether W&B would take a run, or was told not to. Without one it asks for a key, and nobody may be there."""
    return wandb.api.api_key is not None or os.environ.get("WANDB_MODE", "online") != "online"
