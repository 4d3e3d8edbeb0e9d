"""How training is opened: from the newest checkpoint of the run, from another run's weights, or after a loss."""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tinker.lib.base_url import DEFAULT_BASE_URL

from rl_contract.policy_losses import POLICY_LOSSES
from tinker_atropos.chat.sampling import Ints, SampleRefusedError, SamplingSettings
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import BackendError, CheckpointLostError, ConfigError
from tinker_atropos.settings import RecordedCheckpoint, Settings
from tinker_atropos.trainer.backend.answers import HEARD, Patience
from tinker_atropos.trainer.backend.backend import TinkerBackend, wait_for_backend
from tinker_atropos.trainer.backend.checkpoints import (
    StoredCheckpoint,
    StoredCheckpoints,
    StoredWeights,
    lost_sentence,
    states_to_resume,
)
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.backend.reachability import Say, explained
from tinker_atropos.trainer.backend.sdk_calls import CheckpointGoneError
from tinker_atropos.trainer.backend.token_use import TokenUse

logger = logging.getLogger(__name__)

PROBE = SamplingSettings(max_tokens=1)
REOPEN_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Opened:
    """Training that is ready to continue: `step` steps are trained; `resumed` is the checkpoint they came from.

    `data_from` is the checkpoint whose data it goes on behind: `resumed`, or another run's with startFrom.data
    continue. `lost` says that the checkpoint to continue from is gone and training restarted from an earlier step.
    """

    backend: TinkerBackend
    training: Training
    step: int
    resumed: StoredCheckpoint | None
    context_length: int | None
    sampler: Sampler
    data_from: StoredCheckpoint | None = None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class TrainingOpener:
    """What is needed to open a run's training, repeatedly. `probe_T` is any prompt; `say` hears why the backend is
    silent, while it is. `used` counts the tokens that are charged for.
    """

    settings: Settings
    config: RunConfig
    base_url: str | None
    probe_T: Ints
    say: Say = lambda _: None
    used: TokenUse = field(default_factory=TokenUse)

    @property
    def deadline(self) -> float:
        return self.config.tinker.backend_deadline_seconds

    @property
    def stored(self) -> StoredCheckpoints:
        return StoredCheckpoints(Patience.of(self.config.tinker))

    @property
    def url(self) -> str:
        """Where the backend is, also if that is left to the SDK."""
        return self.base_url or DEFAULT_BASE_URL

    async def open(self) -> Opened:
        """Reach the backend and open the run's training; returns only after the first sample has come back.

        Raises BackendError, CheckpointLostError, CredentialsError, BillingError, ConfigError or InternalError.
        """
        return await self._reach(self.settings.recorded, restart_if_lost=self.settings.restart_if_lost)

    async def _reach(self, recorded: RecordedCheckpoint | None, *, restart_if_lost: bool) -> Opened:
        reaching = self._open_session(recorded, restart_if_lost=restart_if_lost)
        return await explained(reaching, self.url, self.deadline, self.say)

    async def _open_session(self, recorded: RecordedCheckpoint | None, *, restart_if_lost: bool) -> Opened:
        if self.base_url:
            await wait_for_backend(self.base_url, self.deadline)
        backend = await TinkerBackend.open(self.config.tinker, self._metadata, self.used)
        try:
            return await self._open(backend, recorded, restart_if_lost=restart_if_lost)
        except BaseException:  # whatever the error: the session's threads must not be left behind
            await backend.close("errored")
            raise

    async def open_again(self, recorded: RecordedCheckpoint | None) -> Opened:
        """Reopen after the backend was lost, retrying within the deadline, in which pauses do not count. Raises like
        `open`.

        `recorded` is what this process saved last. Without it, a restart is left to a new attempt.
        """
        give_up = time.monotonic() + self.deadline - HEARD.standstill.seconds
        while True:
            try:
                return await self._reach(recorded, restart_if_lost=False)
            except (BackendError, ConfigError) as error:  # the configuration was accepted the first time
                if time.monotonic() + REOPEN_PAUSE_SECONDS >= give_up + HEARD.standstill.seconds:
                    raise
                logger.warning("the backend is not back yet: %s", error)
                await asyncio.sleep(REOPEN_PAUSE_SECONDS)

    async def _open(
        self, backend: TinkerBackend, recorded: RecordedCheckpoint | None, *, restart_if_lost: bool
    ) -> Opened:
        training, data_from, lost = await self._training(backend, recorded, restart_if_lost=restart_if_lost)
        resumed = data_from if data_from and data_from.run_uid == self.settings.run_uid else None
        sampler = await training.snapshot()
        base_model = self.config.base_model
        try:
            await sampler.sample(self.probe_T, 1, PROBE)
        except SampleRefusedError as error:
            raise ConfigError(f"the backend refuses to sample from {base_model!r}: {error}") from error
        if not POLICY_LOSSES[self.config.tinker.loss].everywhere:
            await training.check_loss(self.probe_T[:1].repeat(2))
        await self._check_base_model(training)
        context_length = await backend.context_length(base_model)
        step = resumed.step if resumed else 0
        return Opened(backend, training, step, resumed, context_length, sampler, data_from, lost)

    async def _check_base_model(self, training: Training) -> None:
        """With a KL to the base model in the advantages, no step could be trained without one."""
        coefficient = self.config.tinker.kl_penalty_coef
        if not coefficient:
            return
        try:
            await training.base_logprobs(self.config.base_model, [self.probe_T])
        except SampleRefusedError as error:
            raise ConfigError(
                f"trainer.kl_penalty_coef is {coefficient:g}, and the backend does not sample from the base model: "
                f"{error}. Set it to 0"
            ) from error

    async def _training(
        self, backend: TinkerBackend, recorded: RecordedCheckpoint | None, *, restart_if_lost: bool
    ) -> tuple[Training, StoredCheckpoint | None, str | None]:
        """The run's training, the checkpoint whose data it goes on behind, and what is lost (see `Opened`)."""
        settings, stored = self.settings, await self.stored.list()
        left = listed = states_to_resume(stored, settings.run_uid, settings.attempt)
        while True:
            lost = lost_sentence(recorded, listed, left)
            if lost and not restart_if_lost:
                raise CheckpointLostError(lost)
            if not left:
                return await self._from_the_beginning(backend), self._other_data(stored), lost
            state, left = left[0], left[1:]
            try:
                training = await backend.load(state.path, self._metadata, with_optimizer=True)
            except CheckpointGoneError as error:
                logger.warning("the checkpoint after step %d is gone, trying the one before: %s", state.step, error)
            else:
                logger.info("continuing after step %d from %s", state.step, state.path)
                return training, state, lost

    async def _from_the_beginning(self, backend: TinkerBackend) -> Training:
        settings = self.settings
        if settings.start_from is None:
            return await backend.create(self.config.base_model, self._metadata)
        optimizer = "and the optimizer " if settings.start_from_optimizer else ""
        logger.info("starting at step 0 from the weights %sof %s", optimizer, settings.start_from)
        path = settings.start_from
        try:
            self._check_fits(path, await self.stored.describe(path))
            return await backend.load(path, self._metadata, with_optimizer=self.settings.start_from_optimizer)
        except CheckpointGoneError as error:
            raise ConfigError(f"startFrom names weights that the backend does not have: {error}") from error

    def _other_data(self, stored: Iterable[StoredCheckpoint]) -> StoredCheckpoint | None:
        """The checkpoint of startFrom, if the run goes on behind its data. Raises ConfigError if none is known."""
        path = self.settings.start_from
        if path is None or not self.settings.start_from_data:
            return None
        found = next((each for each in stored if each.path == path), None)
        if found is None or found.beside.items is None:
            raise ConfigError(
                f"startFrom.data is continue, and {path} does not say which items it was trained with: allowed are "
                f"states of this account that a run of this product saved. Use data: restart"
            )
        return found

    def _check_fits(self, path: str, stored: StoredWeights) -> None:
        """Adapters of another shape would be trained as they are, despite the config. Raises ConfigError."""
        wanted_model, wanted_rank = self.config.base_model, self.config.tinker.lora_rank
        differences = []
        if stored.base_model != wanted_model:
            differences.append(f"they are of the model {stored.base_model!r}, and openai.0 names {wanted_model!r}")
        if stored.lora_rank not in (None, wanted_rank):
            differences.append(f"they have LoRA rank {stored.lora_rank}, and trainer.lora_rank is {wanted_rank}")
        for name, wanted in self.config.tinker.lora_layers.items():
            if stored.lora_layers.get(name, wanted) != wanted:
                differences.append(f"they have {name} {_yaml(not wanted)}, and trainer.{name} is {_yaml(wanted)}")
        if differences:
            raise ConfigError(
                f"startFrom names weights ({path}) that do not fit: {'; '.join(differences)}. "
                "Use the values that they were trained with"
            )

    @property
    def _metadata(self) -> dict[str, str]:
        settings = self.settings
        return {"run": settings.run_name, "run_uid": settings.run_uid, "attempt": str(settings.attempt)}


def _yaml(switch: bool) -> str:
    return str(switch).lower()
