"""What an environment reports besides its groups: its metrics, its evaluations, what it saves for a resumed run.

A report that fails does not affect the run.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinker_atropos.environments.rollout.failures import describe

logger = logging.getLogger(__name__)


class Reports:
    """Replaces one environment's `wandb_log`, `evaluate_log` and `save_checkpoint`, and calls the originals."""

    def __init__(self, env: Any, source: Path) -> None:
        self.source = source
        self._env = env
        self._wandb_log, self._evaluate_log, self._save_checkpoint = (
            env.wandb_log,
            env.evaluate_log,
            env.save_checkpoint,
        )
        self._evaluated: dict[str, Any] = {}
        env.wandb_log, env.evaluate_log, env.save_checkpoint = self.wandb_log, self.evaluate_log, self.save_checkpoint

    async def wandb_log(self, *args: Any, **kwargs: Any) -> None:
        """May raise: many divide by the number of rollouts since the last call, which may be 0."""
        try:
            await self._wandb_log(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- the author's code; BaseEnv would end the environment
            self._failed("wandb_log", error)

    async def evaluate_log(self, metrics: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Some environments report an evaluation only here."""
        self._evaluated.update(metrics)
        await self._evaluate_log(metrics, *args, **kwargs)

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        try:
            self._save_checkpoint(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- a folder that cannot be written is not a reason to end the run
            self._failed("save_checkpoint", error)

    def take_evaluation(self, returned: Any) -> dict[str, Any]:
        """Results of an evaluation that were not passed to `wandb_log`: returned, passed to `evaluate_log`, or still in
        `eval_metrics`, where most environments keep pairs of name and value for the next `wandb_log`. Removed there, so
        that they are not reported later as if from another step. Names are those that `wandb_log` would use.
        """
        waiting = getattr(self._env, "eval_metrics", None)
        pairs = [pair for pair in waiting if _is_pair(pair)] if isinstance(waiting, list) else []
        if pairs:
            self._env.eval_metrics = []
        evaluated, self._evaluated = self._evaluated, {}
        metrics = {**(returned if isinstance(returned, Mapping) else {}), **evaluated, **dict(pairs)}
        return {f"{self._env.wandb_prepend}_{name}": value for name, value in metrics.items()}

    def _failed(self, method: str, error: Exception) -> None:
        logger.warning("%s failed: %s", method, describe(error, self.source))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str)
