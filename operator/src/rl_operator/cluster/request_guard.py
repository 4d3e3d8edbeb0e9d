"""What every request to the API server passes through, kopf's included: a count, and a door that may be shut."""

from collections.abc import Callable

import aiohttp
from yarl import URL

from rl_operator.cluster.watch_ages import WatchAges
from rl_operator.errors import OperatorError
from rl_operator.telemetry import API_CALLS

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OVERLOADED = 429


class NotLeadingError(OperatorError):
    """The lease is not held, or not for certain: nothing is written."""


def counted(ages: WatchAges) -> aiohttp.ClientMiddlewareType:
    """Counts calls by verb and code, and lets `ages` see each watch's stream."""

    async def count(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        verb = verb_of(request.method, request.url)
        try:
            response = await handler(request)
        except (aiohttp.ClientError, TimeoutError, OSError):
            API_CALLS.labels(verb, "none").inc()
            raise
        API_CALLS.labels(verb, str(response.status)).inc()
        if response.status < _OVERLOADED:
            ages.answered()
        if verb == "watch" and response.ok:
            ages.opened(request.url.path.rpartition("/")[2], response.content)
        return response

    return count


def fenced(may_write: Callable[[], bool]) -> aiohttp.ClientMiddlewareType:
    """Lets a write go out only while `may_write()`.

    It cannot hold back what is on its way already: against that stand resourceVersions, uids and names. But a process
    that stood still and wakes up goes on where it was, before any timer tells it that its time is over.
    """

    async def guard(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if request.method in _WRITES and not may_write():
            raise NotLeadingError(f"{request.method} {request.url.path}: not sent: another operator may hold the lease")
        return await handler(request)

    return guard


def verb_of(method: str, url: URL) -> str:
    """Kubernetes' verb for a request. A collection's path ends in a plural, alone or below a namespace."""
    if method != "GET":
        return _WRITES.get(method, method.lower())
    if url.query.get("watch"):
        return "watch"
    below_version = len(url.path.strip("/").split("/")) - (2 if url.path.startswith("/api/") else 3)
    return "list" if below_version in (1, 3) else "get"
