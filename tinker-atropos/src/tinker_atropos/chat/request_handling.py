"""What every route that samples does with a request: read it within limits, validate it, and refuse it in one way."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from tinker_atropos.chat.sampling import ContextOverflowError, SampleRefusedError, UnavailableError
from tinker_atropos.chat.tokenizer import ChatError
from tinker_atropos.serving import json_response, read_limited

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]

CLIENT_CLOSED_REQUEST = 499
"""nginx's code for a client that disconnected; it is never received."""

MAX_BODY_BYTES = 8 * 2**20
"""About a million token ids, with their commas."""

MAX_TOLD = 50
"""How many kinds of refusals and warnings are logged: a message may quote what the client sent."""

logger = logging.getLogger(__name__)


class RefusedRequestError(Exception):
    """The request cannot be served as it is. `code` is for programs; `field` is the field that is wrong."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field or None


def openai_error(refusal: RefusedRequestError) -> dict[str, object]:
    """OpenAI's shape, which sglang's clients do not read."""
    kind = "unavailable" if refusal.status == 503 else "invalid_request_error"
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.field, "code": refusal.code}}


class Told:
    """Logs the first message of each kind."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def tell(self, message: str) -> None:
        kind = re.sub(r"\d+", "N", message)
        if kind not in self._kinds and len(self._kinds) < MAX_TOLD:
            self._kinds.add(kind)
            logger.warning("%s", message)


def guarded(
    handler: Handler, told: Told, shape: Callable[[RefusedRequestError], dict[str, object]] = openai_error
) -> Handler:
    """Refusals are 4xx (the client must change something), unavailability is 503 (it may try again)."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except _ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except (RefusedRequestError, SampleRefusedError, ChatError, UnavailableError) as error:
            refusal = _refusal(error)
        if refusal.status == 400 and not refusal.code:  # sglang's clients discard the message; codes are for programs
            told.tell(f"refused a request to {request.url.path}: {refusal}")
        return json_response(shape(refusal), refusal.status)

    return handle


def _refusal(error: Exception) -> RefusedRequestError:
    if isinstance(error, RefusedRequestError):
        return error
    if isinstance(error, UnavailableError):
        return RefusedRequestError(str(error), status=503)
    code = "context_length_exceeded" if isinstance(error, ContextOverflowError) else None
    return RefusedRequestError(str(error), code=code)


async def parse(request: Request, model: type[Body]) -> Body:
    """Raises RefusedRequestError naming the field."""
    return validated(model, await limited_body(request))


def validated(model: type[Body], body: bytes | dict[str, object]) -> Body:
    """The body as JSON text or as an object. Raises RefusedRequestError naming the field."""
    try:
        return model.model_validate(body) if isinstance(body, dict) else model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        raise RefusedRequestError(f"{field}: {reason}" if field else reason, field=field) from None


async def limited_body(request: Request) -> bytes:
    body, size = await read_limited(request, MAX_BODY_BYTES)
    if size > MAX_BODY_BYTES:
        message = f"the body has {size} bytes; the limit is {MAX_BODY_BYTES}: shorten the prompt"
        raise RefusedRequestError(message, status=413)
    return body


class _ClientGoneError(Exception):
    """The client is no longer waiting for the answer."""


async def unless_gone(request: Request, work: Coroutine[object, object, T]) -> T:
    """Wait for the work, and cancel it (at the backend too) when the client disconnects."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _ClientGoneError
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
