"""A session of the tinker SDK: deadlines on every call, and errors in this package's vocabulary.

The SDK retries connection errors for up to five minutes, and hangs at startup if the port is dead: hence a bound on the
silence around every future, and a `healthz` check before the first call.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

import tinker

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import BackendError, RunError
from tinker_atropos.trainer.backend.answers import Patience
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.reachability import PROBE_SECONDS, shown, why_silent
from tinker_atropos.trainer.backend.sdk_calls import gone_or, submitted
from tinker_atropos.trainer.backend.token_use import TokenUse

CLOSE_SECONDS = 3.0
HEALTH_POLL_SECONDS = 0.5


async def wait_for_backend(base_url: str, deadline_seconds: float) -> None:
    """Wait until the backend answers `healthz`. Raises BackendError after the deadline."""
    give_up = time.monotonic() + deadline_seconds
    while (why := await why_silent(base_url, min(PROBE_SECONDS, deadline_seconds))) is not None:
        if time.monotonic() >= give_up:
            raise BackendError(
                f"the backend at TINKER_BASE_URL ({shown(base_url)}) did not answer within "
                f"trainer.backend_deadline_seconds ({deadline_seconds:g} s): {why}"
            )
        await asyncio.sleep(HEALTH_POLL_SECONDS)


class TinkerBackend:
    """One session with a Tinker backend. Every method raises a RunError when the run cannot continue."""

    def __init__(self, service: tinker.ServiceClient, settings: TrainerSettings, used: TokenUse | None = None) -> None:
        self._service = service
        self._settings = settings
        self._patience = Patience.of(settings)
        self._used = used or TokenUse()

    @classmethod
    async def open(
        cls, settings: TrainerSettings, metadata: Mapping[str, str], used: TokenUse | None = None
    ) -> "TinkerBackend":
        """`used` counts what all sessions of a process use."""
        service = tinker.ServiceClient(user_metadata=dict(metadata))
        await submitted("opening a session", Patience.of(settings), lambda: _open_session(service))
        return cls(service, settings, used)

    async def context_length(self, base_model: str) -> int | None:
        """The model's longest sequence in tokens, if the backend reports it."""
        capabilities = await submitted(
            "asking for the backend's models",
            self._patience,
            lambda: tinker.RestClient().get_server_capabilities(),
        )
        lengths = {model.model_name: model.max_context_length for model in capabilities.supported_models}
        return lengths.get(base_model)

    async def create(self, base_model: str, metadata: Mapping[str, str]) -> Training:
        """A new adapter, by the settings. A refusal of a part of the layers names the fields."""
        settings = self._settings
        off = [f"trainer.{name}" for name, trained in settings.lora_layers.items() if not trained]
        client = await submitted(
            f"creating a training run of {base_model!r}" + (f" without {', '.join(off)}" if off else ""),
            self._patience,
            lambda: self._service.create_lora_training_client(
                base_model,
                rank=settings.lora_rank,
                seed=settings.seed,
                train_attn=settings.train_attn,
                train_mlp=settings.train_mlp,
                train_unembed=settings.train_unembed,
                user_metadata=dict(metadata),
            ),
        )
        return Training(client, self._settings, self._used)

    async def load(self, state_path: str, metadata: Mapping[str, str], *, with_optimizer: bool) -> Training:
        """Continue from a saved state. Raises CheckpointGoneError if the backend no longer has it."""
        create: Callable[..., Any] = self._service.create_training_client_from_state
        if with_optimizer:
            create = self._service.create_training_client_from_state_with_optimizer
        loading = functools.partial(create, state_path, user_metadata=dict(metadata))
        try:
            client = await submitted(f"loading {state_path}", self._patience, loading)
        except RunError as error:
            raise gone_or(error) from error
        return Training(client, self._settings, self._used)

    async def close(self, status: Literal["success", "errored", "interrupted"], seconds: float = CLOSE_SECONDS) -> None:
        """Tell the backend that the session is over, and end its threads' work. No answer is needed."""
        with contextlib.suppress(Exception):  # best effort: the session expires by itself
            closing = self._service.close(status)
            await asyncio.wait_for(asyncio.wrap_future(closing.future()), seconds)


def _open_session(service: tinker.ServiceClient) -> "Future[None]":
    """Open the session now. The SDK waits an hour for an unpaid bill; its own check lets us fail immediately. And it
    takes samples that are paused for two hours to be stuck.
    """
    service._check_accessible()  # noqa: SLF001 -- the only call that does not wait, see above
    holder = service.holder
    ours = {"billing_exception_max_pause_duration_sec": 0, "sample_enable_stuck_detection": False}
    holder._client_config = holder._client_config.model_copy(update=ours)  # noqa: SLF001 -- it has no other setting
    opened: Future[None] = Future()
    opened.set_result(None)
    return opened
