"""How training is opened: from the newest checkpoint of the run, from another run's weights, or after a loss."""

import asyncio
import logging
import time
from dataclasses import dataclass

from tinker_atropos.config import RunConfig
from tinker_atropos.errors import BackendError, ConfigError, InternalError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend.backend import Backend, Training, wait_for_backend
from tinker_atropos.trainer.backend.policy import Sampler, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.backend.sdk_calls import CheckpointGoneError
from tinker_atropos.trainer.backend.stored_checkpoints import Checkpoint, StoredWeights, states_to_resume
from tinker_atropos.trainer.data.groups import Ints

logger = logging.getLogger(__name__)

PROBE = SamplingSettings(max_tokens=1)
REOPEN_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Opened:
    """Training that is ready to continue: `step` steps are trained; `resumed` is the checkpoint they came from."""

    backend: Backend
    training: Training
    step: int
    resumed: Checkpoint | None
    context_length: int | None
    sampler: Sampler


@dataclass(frozen=True, slots=True)
class TrainingOpener:
    """What is needed to open a run's training, repeatedly. `probe_T` is any prompt."""

    settings: Settings
    config: RunConfig
    base_url: str | None
    probe_T: Ints

    @property
    def deadline(self) -> float:
        return self.config.tinker.backend_deadline_seconds

    async def open(self) -> Opened:
        """Reach the backend and open the run's training; returns only after the first sample has come back.

        Raises BackendError, CredentialsError, BillingError, ConfigError or InternalError.
        """
        if self.base_url:
            await wait_for_backend(self.base_url, self.deadline)
        backend = await Backend.open(self.deadline, self._metadata)
        try:
            return await self._open(backend)
        except BaseException:  # whatever the error: the session's threads must not be left behind
            await backend.close("errored")
            raise

    async def open_again(self) -> Opened:
        """Reopen after the backend was lost, retrying within the deadline. Raises like `open`."""
        give_up = time.monotonic() + self.deadline
        while True:
            try:
                return await asyncio.wait_for(self.open(), give_up - time.monotonic())
            except TimeoutError:
                raise BackendError(
                    f"the backend was lost and did not come back within tinker.backend_deadline_seconds "
                    f"({self.deadline:g} s)"
                ) from None
            except (BackendError, ConfigError) as error:  # the configuration was accepted the first time
                if time.monotonic() + REOPEN_PAUSE_SECONDS >= give_up:
                    raise
                logger.warning("the backend is not back yet: %s", error)
                await asyncio.sleep(REOPEN_PAUSE_SECONDS)

    async def _open(self, backend: Backend) -> Opened:
        training, resumed = await self._training(backend)
        sampler = await training.snapshot()
        base_model = self.config.base_model
        try:
            await sampler.sample(self.probe_T, 1, PROBE)
        except SampleRefusedError as error:
            raise ConfigError(f"the backend refuses to sample from {base_model!r}: {error}") from error
        context_length = await backend.context_length(base_model)
        return Opened(backend, training, resumed.step if resumed else 0, resumed, context_length, sampler)

    async def _training(self, backend: Backend) -> tuple[Training, Checkpoint | None]:
        """The run's training, and the checkpoint that it continues from."""
        settings, tinker = self.settings, self.config.tinker
        states = await self._states(backend)
        for state in states:
            try:
                training = await backend.load(state.path, self._metadata, with_optimizer=True)
            except CheckpointGoneError as error:
                logger.warning("the checkpoint after step %d is gone, trying the one before: %s", state.step, error)
            else:
                logger.info("continuing after step %d from %s", state.step, state.path)
                return training, state
        if states:
            raise InternalError(
                f"none of the run's {len(states)} checkpoints can still be loaded (the newest was "
                f"{states[0].path}): start a new run, or raise tinker.checkpoint_ttl_days"
            )
        if settings.start_from is not None:
            optimizer = "and the optimizer " if settings.start_from_optimizer else ""
            logger.info("starting at step 0 from the weights %sof %s", optimizer, settings.start_from)
            return await self._start_from(backend, settings.start_from), None
        created = await backend.create(self.config.base_model, tinker.lora_rank, tinker.seed, self._metadata)
        return created, None

    async def _start_from(self, backend: Backend, path: str) -> Training:
        try:
            self._check_fits(path, await backend.stored.describe(path))
            return await backend.load(path, self._metadata, with_optimizer=self.settings.start_from_optimizer)
        except CheckpointGoneError as error:
            raise ConfigError(f"startFrom names weights that the backend does not have: {error}") from error

    def _check_fits(self, path: str, stored: StoredWeights) -> None:
        """Adapters of another shape would be trained as they are, despite the config. Raises ConfigError."""
        wanted_model, wanted_rank = self.config.base_model, self.config.tinker.lora_rank
        differences = []
        if stored.base_model != wanted_model:
            differences.append(f"they are of the model {stored.base_model!r}, and openai.0 names {wanted_model!r}")
        if stored.lora_rank not in (None, wanted_rank):
            differences.append(f"they have LoRA rank {stored.lora_rank}, and tinker.lora_rank is {wanted_rank}")
        if differences:
            raise ConfigError(
                f"startFrom names weights ({path}) that do not fit: {'; '.join(differences)}. "
                "Use the values that they were trained with"
            )

    async def _states(self, backend: Backend) -> list[Checkpoint]:
        """The run's states, best first."""
        return states_to_resume(await backend.stored.list(), self.settings.run_uid, self.settings.attempt)

    @property
    def _metadata(self) -> dict[str, str]:
        settings = self.settings
        return {"run": settings.run_name, "run_uid": settings.run_uid, "attempt": str(settings.attempt)}
