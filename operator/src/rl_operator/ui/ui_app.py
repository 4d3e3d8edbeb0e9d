"""The page as an application: its routes, what is static, what is said when something goes wrong, and the stream of
changes.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rl_operator.operator_errors import (
    BusyError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    RefusedError,
)
from rl_operator.ui.live_runs import Listener, NoLongerLiveError
from rl_operator.ui.pages import rollouts_page, run_page, runs_page, talk_page
from rl_operator.ui.ui_context import SAFE_METHODS, STATIC, STATIC_PATH, UiContext, context_of, visitor_of

STATUS: Final[tuple[tuple[type[OperatorError], int], ...]] = (
    (ForbiddenError, 403),
    (RefusedError, 404),
    (GoneError, 404),
    (ConflictError, 409),
    (InvalidError, 400),
    (BusyError, 429),
    (OperatorError, 502),
)

NO_SUCH_PAGE: Final = {404: "There is no such page.", 405: "This address takes no such request."}


async def show_error(request: Request, error: Exception) -> Response:
    """What the target refused or could not do, in its words."""
    status = next(code for kind, code in STATUS if isinstance(error, kind))
    values: dict[str, object] = {"title": "Not shown", "sentence": str(error)}
    if request.method not in SAFE_METHODS:
        values |= {"title": "Not done", "of_run": request.path_params}
    return context_of(request).page(request, "error.html", values, status)


async def show_no_such_page(request: Request, error: Exception) -> Response:
    """The answer also for static files, which nobody has to be known for."""
    assert isinstance(error, HTTPException)
    answer = context_of(request).notice(NO_SUCH_PAGE.get(error.status_code, str(error.detail)), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def show_failure(request: Request, _: Exception) -> Response:
    return context_of(request).notice("The server failed; its log says more.", 500)


async def go_home(request: Request) -> Response:
    return RedirectResponse(f"{context_of(request).root}/runs", 303)


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


def ui_app(context: UiContext) -> Starlette:
    """Callers put a gate in front of it."""
    app = Starlette(
        routes=[
            Route("/", go_home),
            Route("/live", show_changes),
            *runs_page.ROUTES,
            *run_page.ROUTES,
            *rollouts_page.ROUTES,
            *talk_page.ROUTES,
            Mount(STATIC_PATH.rstrip("/"), StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=1000)],
        exception_handlers={OperatorError: show_error, HTTPException: show_no_such_page, Exception: show_failure},
    )
    app.router.redirect_slashes = False
    app.state.ui = context
    return app
