"""A session with the Tinker backend that TINKER_BASE_URL and TINKER_API_KEY name."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rl_contract.env_vars import TINKER_API_KEY, TINKER_BASE_URL
from tinker_atropos.errors import ConfigError, CredentialsError
from tinker_atropos.library_imports import prepare_for_sdk

if TYPE_CHECKING:  # the SDK takes a second to import: only after the options have been checked
    import tinker

SECONDS = 300.0
"""Longest wait for one answer from the backend: it may have to load the weights first."""

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 3.0
KINDS = ("weights", "sampler_weights", "external_weights")


def kind_of(path: str, allowed: tuple[str, ...] = KINDS) -> str:
    """The kind of checkpoint that `tinker://RUN/KIND/NAME` names. Raises ConfigError."""
    parts = path.removeprefix("tinker://").split("/")
    if not path.startswith("tinker://") or len(parts) != 3 or parts[1] not in allowed:
        raise ConfigError(f"--model-path is {path!r}; it must look like tinker://RUN/{'|'.join(allowed)}/NAME")
    return parts[1]


async def ask(doing: str, submit: Callable[[], Any]) -> Any:
    """Make one SDK call and wait for its result. Raises the RunError that says what is wrong."""
    from tinker_atropos.trainer.backend.answers import Patience
    from tinker_atropos.trainer.backend.sdk_calls import submitted

    return await submitted(doing, Patience(SECONDS, pause=SECONDS), submit)


@asynccontextmanager
async def session(purpose: str) -> "AsyncIterator[tinker.ServiceClient]":
    """An open session, closed with the block. Raises CredentialsError without a key, BackendError without an answer."""
    if not os.environ.get(TINKER_API_KEY):
        raise CredentialsError("TINKER_API_KEY is not set: export the key of the backend that has the weights")
    prepare_for_sdk()
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    logging.getLogger("tinker").setLevel(logging.CRITICAL)  # a failure is reported once, by the error that is raised
    from tinker_atropos.trainer.backend.backend import wait_for_backend

    if base_url := os.environ.get(TINKER_BASE_URL):
        await wait_for_backend(base_url, CONNECT_SECONDS)
    import tinker

    service = await ask(
        "opening a session", lambda: _resolved(tinker.ServiceClient(user_metadata={"purpose": purpose}))
    )
    try:
        yield service
    finally:
        with contextlib.suppress(Exception):  # the answer is there: a failed close changes nothing
            await asyncio.wait_for(asyncio.to_thread(lambda: service.close("success").result()), CLOSE_SECONDS)


def _resolved(value: object) -> "Future[Any]":
    """A value in the shape of the SDK's futures."""
    future: Future[object] = Future()
    future.set_result(value)
    return future
