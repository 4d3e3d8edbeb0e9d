"""How training is opened: from the newest checkpoint of the run, from another run's weights, or anew."""

import logging
from dataclasses import dataclass

from tinker_atropos.config import RunConfig
from tinker_atropos.errors import ConfigError
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.backend import Backend, Training, wait_for_backend
from tinker_atropos.trainer.checkpoints import Checkpoint, newest_state
from tinker_atropos.trainer.policy import Sampler, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.rollouts import Ints

logger = logging.getLogger(__name__)

PROBE = SamplingSettings(max_tokens=1)


@dataclass(frozen=True, slots=True)
class Opened:
    """Training that is able to go on: `step` steps are trained; `resumed` is the checkpoint they came from."""

    backend: Backend
    training: Training
    step: int
    resumed: Checkpoint | None
    context_length: int | None
    sampler: Sampler


async def open_training(settings: Settings, config: RunConfig, base_url: str | None, probe_T: Ints) -> Opened:
    """Reach the backend and open the run's training; returns only after the first sample came back.

    `probe_T` is any prompt. Raises BackendError, CredentialsError, BillingError, ConfigError or InternalError.
    """
    deadline = config.tinker.backend_deadline_seconds
    if base_url:
        await wait_for_backend(base_url, deadline)
    metadata = {"run": settings.run_name, "run_uid": settings.run_uid, "attempt": str(settings.attempt)}
    backend = await Backend.open(deadline, metadata)
    resumed = await _newest_state(backend, settings)
    if resumed is not None:
        logger.info("resuming after step %d from %s", resumed.step, resumed.path)
        training = await backend.load(resumed.path, metadata, with_optimizer=True)
    elif settings.start_from is not None:
        logger.info("starting at step 0 from the weights of %s", settings.start_from)
        training = await backend.load(settings.start_from, metadata, with_optimizer=False)
    else:
        training = await backend.create(config.base_model, config.tinker.lora_rank, config.tinker.seed, metadata)
    sampler = await training.snapshot()
    try:
        await sampler.sample(probe_T, 1, PROBE)
    except SampleRefusedError as error:
        raise ConfigError(f"the backend refuses to sample from {config.base_model!r}: {error}") from error
    context_length = await backend.context_length(config.base_model)
    return Opened(backend, training, resumed.step if resumed else 0, resumed, context_length, sampler)


async def _newest_state(backend: Backend, settings: Settings) -> Checkpoint | None:
    """The run's newest state. A first attempt has none, and a run without a uid cannot be told from others."""
    if settings.attempt == 1 or not settings.run_uid:
        return None
    return newest_state(await backend.checkpoints(), settings.run_uid, settings.attempt)
