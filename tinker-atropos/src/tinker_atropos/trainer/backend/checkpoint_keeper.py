"""One attempt's checkpoints: saved, and deleted again once there are newer ones; and which ones are kept."""

import logging
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import InternalError, RunError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.backend.stored_checkpoints import (
    StoredCheckpoint,
    StoredCheckpoints,
    checkpoint_metadata,
    checkpoint_name,
    states_of,
    states_to_resume,
)

logger = logging.getLogger(__name__)


class CheckpointKeeper:
    """Saves states and sampler weights of one attempt.

    Periodic states get a TTL in case no process is left to delete them. What a run ends or stops with has none.
    """

    def __init__(self, settings: Settings, config: TrainerSettings) -> None:
        self._run_uid = settings.run_uid
        self._attempt = settings.attempt
        self._config = config
        self._saved_last: str | None = None

    async def save_state(
        self,
        training: Training,
        step: int,
        environment_state: str | None = None,
        stopped_early: str | None = None,
        *,
        forever: bool,
    ) -> StoredCheckpoint:
        """`environment_state` and `stopped_early` are kept beside the weights, for an attempt that continues from
        them.
        """
        ttl = None if forever else timedelta(days=self._config.checkpoint_ttl_days)
        path = await training.save_state(
            checkpoint_name(self._attempt, step, stopped_early=stopped_early is not None),
            checkpoint_metadata(self._run_uid, self._attempt, step, environment_state, stopped_early),
            ttl_seconds=None if ttl is None else int(ttl.total_seconds()),
        )
        self._saved_last = path
        expires_at = None if ttl is None else datetime.now(UTC) + ttl
        return StoredCheckpoint(
            path, "state", self._run_uid, self._attempt, step, expires_at, environment_state, stopped_early
        )

    async def save_sampler(
        self, training: Training, step: int, *, forever: bool = True, stopped_early: bool = False
    ) -> str:
        """Save sampler weights; returns their path. Those that are not `forever` get the TTL of periodic states."""
        ttl = None if forever else int(timedelta(days=self._config.checkpoint_ttl_days).total_seconds())
        name = checkpoint_name(self._attempt, step, stopped_early=stopped_early)
        return await training.save_sampler(name, self._metadata(step), ttl)

    def samplers_of_earlier_attempts(self, listed: Iterable[StoredCheckpoint]) -> list[StoredCheckpoint]:
        """What their evaluations sampled from, and final ones, if they got that far: nobody waits for those results any
        more, and this attempt saves final ones of its own. The best may be among them.
        """
        ours = (each for each in listed if each.kind == "sampler" and each.run_uid == self._run_uid)
        return [each for each in ours if each.attempt < self._attempt]

    async def tidy(self, stored: StoredCheckpoints, spared: Collection[str] = ()) -> None:
        """Delete states that newer ones replaced, but not those at `spared` paths.

        Raises InternalError if a newer attempt has saved. Any other error is a warning: the next save tries again.
        """
        try:
            listed = await stored.list()
            states_to_resume(listed, self._run_uid, self._attempt)
            for state in superfluous_states(
                listed,
                self._run_uid,
                self._attempt,
                keep=self._config.keep_checkpoints,
                keep_every=self._config.keep_checkpoint_every,
                spared=spared,
            ):
                if state.path != self._saved_last:  # its step may be lower than that of unloadable states
                    await stored.delete(state.path)
        except InternalError:
            raise
        except RunError as error:
            logger.warning("old checkpoints could not be deleted: %s", error)

    def _metadata(self, step: int) -> dict[str, str]:
        return checkpoint_metadata(self._run_uid, self._attempt, step)


def superfluous_states(
    checkpoints: Iterable[StoredCheckpoint],
    run_uid: str,
    attempt: int,
    *,
    keep: int,
    keep_every: int,
    spared: Collection[str] = (),
) -> list[StoredCheckpoint]:
    """The run's states that may be deleted: all but the `keep` newest, those of a multiple of `keep_every` steps, and
    those at `spared` paths.

    The newest are those of the newest attempt: it may have restarted from an earlier step than the last one reached.
    As long as `attempt` has saved nothing, nothing may be deleted.
    """
    ours = states_of(checkpoints, run_uid)
    if all(checkpoint.attempt != attempt for checkpoint in ours):
        return []
    newest_first = sorted(ours, key=lambda checkpoint: (checkpoint.attempt, checkpoint.step), reverse=True)
    older = [state for state in newest_first[keep:] if state.path not in spared]
    return [state for state in older if not (keep_every and state.step % keep_every == 0)]
