"""Server-sent events: which runs changed, to each tab that is open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rl_operator.ui.live_runs import Listener, NoLongerLiveError
from rl_operator.ui.ui_context import context_of, visitor_of

KEEP_ALIVE_SECONDS = 20.0
"""Proxies end connections that are silent for a minute."""


async def show_changes(request: Request) -> Response:
    """Server-sent events: the runs that changed, as `[[namespace, name], …]`, of the namespace that the query names.
    One connection per tab. `over` is the last event, with the reason why nothing more comes.
    """
    live = visitor_of(request).live(request.query_params.get("namespace"))
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")

    async def events() -> AsyncIterator[bytes]:
        async with live.changes() as listener:
            with context_of(request).streams.opened(listener):
                async for event in _events_of(listener):
                    yield event

    return StreamingResponse(events(), media_type="text/event-stream")


async def _events_of(listener: Listener) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    while True:
        try:
            changed = await asyncio.wait_for(listener.next(), KEEP_ALIVE_SECONDS)
        except TimeoutError:
            yield b": still here\n\n"
        except NoLongerLiveError as error:
            if sentence := str(error):  # else the page connects again, to the next server
                yield _event("over", sentence)
            return
        else:
            yield _event("changed", sorted(changed))


def _event(name: str, content: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(content) + b"\n\n"


ROUTES: Final = (Route("/live", show_changes),)
