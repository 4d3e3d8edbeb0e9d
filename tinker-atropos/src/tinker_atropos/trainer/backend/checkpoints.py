"""Checkpoints of a run: their names and metadata, which one a new attempt continues from, and which ones are kept.

`StoredCheckpoints` lists and deletes them through the SDK's REST client, which needs no session.
"""

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import tinker

from rl_contract.trainer_messages import TrainerCheckpoint
from rl_contract.trainer_settings import TrainerSettings
from rl_contract.wire import timestamp
from tinker_atropos.errors import InternalError, RunError
from tinker_atropos.settings import RecordedCheckpoint, Settings
from tinker_atropos.trainer.backend.answers import HOUSEKEEPING_PATIENCE, Patience
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.sdk_calls import CheckpointGoneError, gone_or, submitted

logger = logging.getLogger(__name__)

Kind = Literal["state", "sampler"]


class BesideWeights(NamedTuple):
    """What an attempt needs to continue from a checkpoint, besides the weights.

    `environment_state` is what the run's environment goes on from; None: it has none. `items` is where the run was in
    its data, as the trajectory API says it; None: that is not known. `stopped_early`: why the run ended with this step;
    None: it did not.
    """

    environment_state: str | None = None
    items: str | None = None
    stopped_early: str | None = None


NOTHING_BESIDE = BesideWeights()


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A saved state (trainable, with optimizer) or sampler weights, as described by its metadata.

    `expires_at` is when the backend may delete it; None: never. `beside` is what is kept with the weights.
    """

    path: str
    kind: Kind
    run_uid: str
    attempt: int
    step: int
    expires_at: datetime | None = None
    beside: BesideWeights = NOTHING_BESIDE

    @classmethod
    def from_metadata(
        cls, path: str, kind: Kind, metadata: Mapping[str, str], expires_at: datetime | None = None
    ) -> "StoredCheckpoint | None":
        """None for a checkpoint that is not one of ours."""
        attempt, step = metadata.get("attempt", ""), metadata.get("step", "")
        if "run_uid" not in metadata or not attempt.isdecimal() or not step.isdecimal():
            return None
        beside = BesideWeights(**{name: metadata.get(name) for name in BesideWeights._fields})
        return cls(path, kind, metadata["run_uid"], int(attempt), int(step), expires_at, beside)

    @property
    def message(self) -> TrainerCheckpoint:
        """As `/status` shows it."""
        return TrainerCheckpoint(step=self.step, state_path=self.path, expires_at=timestamp(self.expires_at))


def checkpoint_name(attempt: int, step: int, *, stopped_early: bool = False) -> str:
    """A name can be used once. Where a run stops early, the step may have been saved before anyone knew that."""
    return f"attempt-{attempt}-step-{step:06d}{'-last' if stopped_early else ''}"


def checkpoint_metadata(
    run_uid: str, attempt: int, step: int, beside: BesideWeights = NOTHING_BESIDE
) -> dict[str, str]:
    known = {name: text for name, text in beside._asdict().items() if text is not None}
    return {"run_uid": run_uid, "attempt": str(attempt), "step": str(step), **known}


def states_to_resume(checkpoints: Iterable[StoredCheckpoint], run_uid: str, attempt: int) -> list[StoredCheckpoint]:
    """The run's states, best first: the furthest step, and among equals the newest attempt.

    Raises InternalError if an attempt newer than this one has saved: two must not train the same run.
    """
    ours = states_of(checkpoints, run_uid)
    newer = next((checkpoint for checkpoint in ours if checkpoint.attempt > attempt), None)
    if newer:
        raise InternalError(
            f"attempt {newer.attempt} of this run has already saved {newer.path}; attempt {attempt} ends: "
            f"two must not train the same run"
        )
    return sorted(ours, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt), reverse=True)


def lost_sentence(
    recorded: RecordedCheckpoint | None, listed: Sequence[StoredCheckpoint], left: Sequence[StoredCheckpoint]
) -> str | None:
    """What is lost if the run continues from the first of `left`; None: nothing.

    `listed` are the run's states, best first, and `left` those of them that have not turned out to be gone. Without a
    record, any of them will do; states of a run that once had some are never left for the beginning.
    """
    if left and (recorded is None or left[0].step >= recorded.step):
        return None
    if recorded is None:
        if not listed:
            return None
        recorded = RecordedCheckpoint(listed[0].step, listed[0].path)
    there = f"the newest one, after step {left[0].step}: {left[0].path}" if left else "none that can be loaded"
    return (
        f"the backend has neither the checkpoint after step {recorded.step} that this run saved nor a newer one "
        f"(deleted, expired, or another key's account); of this run it has {there}"
    )


def states_of(checkpoints: Iterable[StoredCheckpoint], run_uid: str) -> list[StoredCheckpoint]:
    """The states that a run saved: what it can be trained further from."""
    return [checkpoint for checkpoint in checkpoints if checkpoint.run_uid == run_uid and checkpoint.kind == "state"]


PAGE = 100

_KINDS: Mapping[str, Literal["state", "sampler"]] = {"training": "state", "sampler": "sampler"}


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The weights at a path: adapters of a model. `lora_rank` is None if the backend does not report it; `lora_layers`,
    which layers they are on, has those names that it reports.
    """

    base_model: str
    lora_rank: int | None
    lora_layers: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class StoredCheckpoints:
    """Every method can raise a RunError, which says nothing about the session's health."""

    patience: Patience

    async def list(self) -> list[StoredCheckpoint]:
        """All checkpoints of this key's owner that carry our metadata, of any run, newest first."""
        found: list[StoredCheckpoint] = []
        offset = 0
        while True:
            page_of = functools.partial(tinker.RestClient.list_user_checkpoints, limit=PAGE, offset=offset)
            page = await self._ask("listing checkpoints", page_of)
            for listed in page.checkpoints:
                kind = _KINDS.get(listed.checkpoint_type)
                marked = kind and StoredCheckpoint.from_metadata(
                    listed.tinker_path, kind, listed.user_metadata or {}, expires_at=listed.expires_at
                )
                if marked:
                    found.append(marked)
            offset += len(page.checkpoints)
            if not page.checkpoints or page.cursor is None or offset >= page.cursor.total_count:
                return found

    async def describe(self, path: str) -> StoredWeights:
        """What a path holds, whoever owns it. Raises CheckpointGoneError if the backend does not have it."""
        try:
            found = await self._ask(f"looking at {path}", lambda rest: rest.get_weights_info_by_tinker_path(path))
        except RunError as error:
            raise gone_or(error) from error
        reported = {name: getattr(found, name) for name in ("train_attn", "train_mlp", "train_unembed")}
        layers = {name: trained for name, trained in reported.items() if trained is not None}
        return StoredWeights(found.base_model, found.lora_rank, layers)

    async def delete(self, path: str) -> None:
        """A checkpoint that is gone is deleted: the answer to an earlier request may have been lost."""
        try:
            await self._ask(f"deleting {path}", lambda rest: rest.delete_checkpoint_from_tinker_path(path))
        except RunError as error:
            if not isinstance(gone_or(error), CheckpointGoneError):
                raise

    async def keep_forever(self, path: str) -> None:
        """Remove a checkpoint's expiry."""
        await self._ask(f"keeping {path}", lambda rest: rest.set_checkpoint_ttl_from_tinker_path(path, None))

    async def _ask(self, doing: str, ask: Callable[[tinker.RestClient], Any]) -> Any:
        # RestClient() itself may block, so it is created in the thread that uses it. Its connections are shared.
        return await submitted(doing, self.patience, lambda: ask(tinker.RestClient()))


class CheckpointKeeper:
    """Saves states and sampler weights of one attempt.

    Periodic states get a TTL in case no process is left to delete them. What a run ends or stops with has none.
    """

    def __init__(self, settings: Settings, config: TrainerSettings) -> None:
        self._run_uid = settings.run_uid
        self._attempt = settings.attempt
        self._config = config
        self.stored = StoredCheckpoints(HOUSEKEEPING_PATIENCE)
        self._saved_last: str | None = None

    async def save_state(
        self,
        training: Training,
        step: int,
        beside: BesideWeights = NOTHING_BESIDE,
        *,
        forever: bool,
    ) -> StoredCheckpoint:
        ttl = self._ttl(forever=forever)
        path = await training.save_state(
            checkpoint_name(self._attempt, step, stopped_early=beside.stopped_early is not None),
            checkpoint_metadata(self._run_uid, self._attempt, step, beside),
            ttl_seconds=ttl,
        )
        self._saved_last = path
        expires_at = None if ttl is None else datetime.now(UTC) + timedelta(seconds=ttl)
        return StoredCheckpoint(path, "state", self._run_uid, self._attempt, step, expires_at, beside)

    async def save_sampler(
        self, training: Training, step: int, *, forever: bool = True, stopped_early: bool = False
    ) -> str:
        """Save sampler weights; returns their path. Those that are not `forever` get the TTL of periodic states."""
        name = checkpoint_name(self._attempt, step, stopped_early=stopped_early)
        metadata = checkpoint_metadata(self._run_uid, self._attempt, step)
        return await training.save_sampler(name, metadata, self._ttl(forever=forever))

    def _ttl(self, *, forever: bool) -> int | None:
        return None if forever else int(timedelta(days=self._config.checkpoint_ttl_days).total_seconds())

    def samplers_of_earlier_attempts(self, listed: Iterable[StoredCheckpoint]) -> list[StoredCheckpoint]:
        """What their evaluations sampled from, and final ones, if they got that far: nobody waits for those results any
        more, and this attempt saves final ones of its own. The best may be among them.
        """
        ours = (each for each in listed if each.kind == "sampler" and each.run_uid == self._run_uid)
        return [each for each in ours if each.attempt < self._attempt]

    async def tidy(self, spared: Collection[str] = ()) -> None:
        """Delete states that newer ones replaced, but not those at `spared` paths.

        Raises InternalError if a newer attempt has saved. Any other error is a warning: the next save tries again.
        """
        try:
            listed = await self.stored.list()
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
                    await self.stored.delete(state.path)
        except InternalError:
            raise
        except RunError as error:
            logger.warning("old checkpoints could not be deleted: %s", error)


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
