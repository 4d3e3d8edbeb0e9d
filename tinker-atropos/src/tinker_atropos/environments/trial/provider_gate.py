"""The provider, for a trial of a stranger's code: a process in a container of its own has the key, and passes requests
on from the pod's loopback address. Whoever asks gets completions of the trial's models, and nothing else.
"""

import asyncio
import signal
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_contract.processes import INFERENCE_URL
from tinker_atropos.chat.request_handling import RefusedRequestError, Told, guarded, parse
from tinker_atropos.chat.sampling import UnavailableError
from tinker_atropos.environments.trial.provider import Provider
from tinker_atropos.serving import bind, serve

LONGEST_SECONDS: Final = 600.0
"""Of one answer: a trial of a model takes no longer."""


class PassedRequest(BaseModel):
    """What is looked at; the rest is passed on as it is."""

    model_config = ConfigDict(extra="allow")

    model: str


async def serve_provider(models: Collection[str]) -> None:
    """Serve where an environment finds the inference server of its run, until SIGTERM or SIGINT. Raises RunError."""
    provider, stopped = Provider.take(next(iter(models), "")), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    address = urlsplit(INFERENCE_URL)
    with bind(address.hostname or "", address.port or 0, "INFERENCE_URL") as listener:
        async with (
            httpx.AsyncClient(timeout=LONGEST_SECONDS) as client,  # it follows no redirects
            serve(gate_app(provider, models, client), listener),
        ):
            await stopped.wait()


def gate_app(provider: Provider, models: Collection[str], client: httpx.AsyncClient) -> Starlette:
    async def pass_on(request: Request) -> Response:
        asked = await parse(request, PassedRequest)
        if asked.model not in models:
            raise RefusedRequestError(f"this trial is one of {', '.join(models)}", status=403, field="model")
        headers = {"authorization": f"Bearer {provider.key}"} if provider.key else {}
        try:
            answer = await client.post(f"{provider.url}{request.url.path}", json=asked.model_dump(), headers=headers)
        except httpx.HTTPError as error:
            raise UnavailableError(f"the provider cannot be reached: {type(error).__name__}") from None
        kept = {name: answer.headers[name] for name in ("content-type", "retry-after") if name in answer.headers}
        return Response(provider.redact(answer.text), answer.status_code, kept)

    handle = guarded(pass_on, Told())
    return Starlette(routes=[Route(path, handle, methods=["POST"]) for path in ("/chat/completions", "/completions")])
