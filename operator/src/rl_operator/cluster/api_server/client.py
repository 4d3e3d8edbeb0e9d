"""The only access to the API server: a deadline on every call, errors translated once, one connection pool."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client.configuration import Configuration
from yarl import URL

from rl_operator.api.kubernetes_objects import FailureStatus, KubernetesObject
from rl_operator.cluster.api_server.clock import ServerClock
from rl_operator.cluster.api_server.connection import (
    connector_of,
    load_configuration,
    open_session,
    request_options,
    without_credentials,
)
from rl_operator.log_lines import LineCutter
from rl_operator.operator_errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    RefusedError,
    TargetUnreachableError,
)

PAGE_SIZE = 100
"""Larger chunks cost memory that is never returned: 500 finished pods are 60 MiB while they are read."""
WATCH_SECONDS = 290
"""The server ends a watch after this long; the client allows ten more seconds."""
INACTIVITY_SECONDS = 75
"""Bookmarks come every minute: a stream that is silent for longer than this is dead."""

METADATA_ONLY = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
_METADATA_LIST = METADATA_ONLY.replace("Metadata;", "MetadataList;")
"""Lists must be requested by this name, and watches by the other: the wrong one gives a stream without events."""

JSON = "application/json"

PatchType = Literal["application/merge-patch+json", "application/json-patch+json"]
MERGE_PATCH: PatchType = "application/merge-patch+json"
JSON_PATCH: PatchType = "application/json-patch+json"

Params = Mapping[str, str | int]
Middlewares = tuple[aiohttp.ClientMiddlewareType, ...]


Held = TypeVar("Held", bound=KubernetesObject)


class ApiPath(str, Generic[Held]):
    """A path of the API server, whose type says what is there. An answer has this shape because the API has it."""

    __slots__ = ()


ListMetadata = TypedDict("ListMetadata", {"resourceVersion": str, "continue": str}, total=False)


class Page(TypedDict, Generic[Held]):
    items: list[Held] | None
    metadata: ListMetadata


class WatchEvent(TypedDict, Generic[Held]):
    type: str
    object: Held


class ClusterClient:
    """Calls that return decoded JSON and raise `OperatorError`s. Must be made inside a running event loop."""

    def __init__(
        self,
        configuration: Configuration,
        request_seconds: float = 20.0,
        middlewares: Middlewares = (),
        connector: aiohttp.BaseConnector | None = None,
    ) -> None:
        """Every request passes through `middlewares`, kopf's as well. Without a `connector` the client has its own
        connections.
        """
        self._configuration = configuration
        self._middlewares = middlewares
        self._timeout = aiohttp.ClientTimeout(total=request_seconds, sock_connect=10)
        self._session = open_session(configuration, *middlewares, connector=connector)
        self._guests: aiohttp.BaseConnector | None = None
        self._options = request_options(configuration)
        self.clock = ServerClock()

    @classmethod
    async def connect(
        cls, kubeconfig: str = "", context: str = "", request_seconds: float = 20.0, middlewares: Middlewares = ()
    ) -> Self:
        """Load the configuration; nothing is called yet. Raises ConnectionSettingsError."""
        return cls(await load_configuration(kubeconfig, context), request_seconds, middlewares)

    async def acting_as(self, token: str) -> Self:
        """A client of the same API server with this token and none of our credentials. Its connections, which it shares
        with similar clients, close with this client.
        """
        bare = without_credentials(self._configuration)
        self._guests = self._guests or connector_of(bare)
        bare.api_key["BearerToken"] = f"Bearer {token}"
        return type(self)(bare, self._timeout.total or 0.0, self._middlewares, self._guests)

    @property
    def server(self) -> str:
        return str(self._configuration.host)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        if self._guests is not None:
            await self._guests.close()

    # --- calls --------------------------------------------------------------------------------------------------
    async def get(self, path: ApiPath[Held], params: Params = MappingProxyType({}), accept: str = JSON) -> Held:
        """Raises GoneError if there is no such object."""
        found: Held = await self._call("GET", path, params=params, accept=accept)
        return found

    async def each(self, path: ApiPath[Held], params: Params, take: Callable[[Held], None], accept: str = JSON) -> str:
        """Pass every object of a collection to `take`; returns the list's resourceVersion.

        One chunk is in memory at a time. Raises ExpiredError if listing took too long: start again.
        """
        version, token = await self.chunk(path, params, take, accept)
        while token:
            _, token = await self.chunk(path, {**params, "continue": token}, take, accept)
        return version

    async def chunk(
        self, path: ApiPath[Held], params: Params, take: Callable[[Held], None], accept: str = JSON
    ) -> tuple[str, str]:
        """Pass the objects of one chunk to `take`. Returns the list's resourceVersion, and the `continue` of the next
        chunk: empty if this is the last one.
        """
        query: Params = {**params, "limit": PAGE_SIZE}
        accept = _METADATA_LIST if accept == METADATA_ONLY else accept
        page: Page[Held] = await self._call("GET", path, params=query, accept=accept)
        for document in page["items"] or ():  # an empty list of metadata is null
            take(document)
        return page["metadata"]["resourceVersion"], page["metadata"].get("continue", "")

    async def create(self, path: ApiPath[Held], body: Mapping[str, object], accept: str = JSON) -> Held:
        """Raises ConflictError when the name is taken."""
        created: Held = await self._call("POST", path, body=body, accept=accept)
        return created

    async def patch(self, path: ApiPath[Held], body: object, patch_type: PatchType = MERGE_PATCH) -> Held:
        """Raises ConflictError when the resourceVersion or uid in `body` is not the live one."""
        patched: Held = await self._call("PATCH", path, body=body, content_type=patch_type)
        return patched

    async def apply(self, path: str, body: Mapping[str, object], field_manager: str) -> None:
        """Server-side apply. Raises ConflictError when another manager owns a field with another value."""
        params = {"fieldManager": field_manager}
        await self._call("PATCH", path, params=params, body=body, content_type="application/apply-patch+yaml")

    async def update(self, path: ApiPath[Held], body: Mapping[str, object]) -> Held:
        """Replace an object. Raises ConflictError when the resourceVersion in `body` is not the live one."""
        updated: Held = await self._call("PUT", path, body=body)
        return updated

    async def delete(self, path: ApiPath[Held], uid: str, resource_version: str | None = None) -> Held:
        """Delete exactly that object, or that version of it. Raises ConflictError if it has been replaced."""
        version = {"resourceVersion": resource_version} if resource_version else {}
        answer: Held = await self._call("DELETE", path, body={"preconditions": {"uid": uid, **version}})
        return answer

    async def watch(self, path: ApiPath[Held], params: Params, accept: str = JSON) -> AsyncIterator[WatchEvent[Held]]:
        """Events from `params["resourceVersion"]` on, until the server ends the stream.

        Raises ExpiredError when the version is too old, TargetUnreachableError when the stream breaks.
        """
        query = {**params, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}
        timeout = aiohttp.ClientTimeout(total=WATCH_SECONDS + 10, sock_connect=10, sock_read=INACTIVITY_SECONDS)
        async with self._opened("GET", path, query, accept=accept, timeout=timeout) as response:
            async for line in response.content:
                event = decoded(line)
                if event["type"] == "ERROR":
                    raise failure(f"watch {path}", event["object"])
                yield event

    async def lines(self, path: str, params: Params) -> AsyncIterator[bytes]:
        """Stream a text (a container's log) line by line, cutting long lines, for as long as the server sends.

        Only a followed log may be silent for longer than an ordinary call takes. Raises as `get` does.
        """
        silence = None if "follow" in params else self._timeout.total
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        cutter = LineCutter()
        async with self._opened("GET", path, params, accept="*/*", timeout=timeout) as response:
            async for chunk in response.content.iter_any():
                for line in cutter.feed(chunk):
                    yield line
        for line in cutter.rest():
            yield line

    async def text(self, path: str, params: Params) -> str:
        """A whole text (a container's log so far), under the deadline of ordinary calls. Raises as `get` does."""
        async with self._opened("GET", path, params, accept="*/*", timeout=self._timeout) as response:
            return (await response.read()).decode(errors="replace")

    async def content(
        self, path: str, limit: int, begin: int = 0, headers: Mapping[str, str] = MappingProxyType({})
    ) -> bytes:
        """What a server in a pod answers (`pods/proxy`), from byte `begin` on, for as long as it sends. Raises as `get`
        does; GoneError if there are no more bytes, RefusedError past `limit` bytes.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=self._timeout.total)
        received, asked = bytearray(), {"Range": f"bytes={begin}-"} if begin else {}
        async with self._opened("GET", path, accept="*/*", timeout=timeout, headers={**headers, **asked}) as response:
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > limit:
                    raise RefusedError(f"GET {path}: the answer has more than {limit / 2**20:.0f} MiB")
        sent_whole = response.status != HTTPStatus.PARTIAL_CONTENT  # by a server that knows no ranges
        return bytes(received[begin if sent_whole else 0 :])

    def kopf_session(self, listed: Callable[[], None]) -> aiohttp.ClientSession:
        """A session for kopf: our connections and credentials, but closing it leaves ours open.

        `listed` is called once the API server has answered the first page of a list: from there on kopf watches.
        """
        middlewares = (*self._middlewares, _telling_of_lists(listed))
        return open_session(self._configuration, *middlewares, connector=self._session.connector)

    # --- all requests -------------------------------------------------------------------------------------------
    async def _call(self, method: str, path: str, **options: Any) -> Any:
        async with self._opened(method, path, timeout=self._timeout, **options) as response:
            return decoded(await response.read())

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, params: Params = MappingProxyType({}), **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a request, until the block ends. Raises TargetUnreachableError for what breaks off meanwhile,
        or cannot be decoded.
        """
        try:
            async with await self._open(method, path, params, **options) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            what, reason = "watch" if "watch" in params else method, str(error) or type(error).__name__
            message = f"{what} {path}: the API server {self.server} does not answer: {reason}"
            raise TargetUnreachableError(message) from error

    async def _open(
        self,
        method: str,
        path: str,
        params: Params,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 -- aiohttp's own timeout, not a second one
        body: object = None,
        accept: str = JSON,
        content_type: str = JSON,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> aiohttp.ClientResponse:
        """Send a request; the response's head has arrived and is OK. The caller reads and closes it.

        No redirect is followed: a pod that is asked through the API server may send one, and would get the token.

        This is the only place that honors `Retry-After`: an API server that asks for a pause has done nothing yet, so
        the same request is sent again after it, as often as fits into the deadline of ordinary calls.
        """
        url = self.server + path + (f"?{urlencode({k: v for k, v in params.items() if v != ''})}" if params else "")
        headers = {"Accept": accept, "Content-Type": content_type, **headers}
        text = None if body is None else orjson.dumps(body)
        deadline = asyncio.get_running_loop().time() + (self._timeout.total or 0.0)
        while True:
            response = await self._session.request(
                method,
                URL(url, encoded=True),
                data=text,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **self._options,
            )
            self.clock.observe(response.headers.get("Date", ""))
            if response.status < 300:
                return response
            status = await _status_object(response)
            pause = pause_asked(response.status, response.headers)
            if pause is None or asyncio.get_running_loop().time() + pause > deadline:
                raise failure(f"{method} {path}", status)
            await asyncio.sleep(pause)


def _telling_of_lists(listed: Callable[[], None]) -> aiohttp.ClientMiddlewareType:
    """A middleware that reports when a list began: the first page, which fixes the version of all of them."""

    async def tell(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await handler(request)
        query = request.url.query
        if response.status < 400 and "limit" in query and "continue" not in query:
            listed()
        return response

    return tell


def decoded(text: bytes) -> Any:
    """Parse a response of the API server. Users may write more than 1,024 levels of nesting, which orjson rejects."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


async def _status_object(response: aiohttp.ClientResponse) -> FailureStatus:
    """The `Status` in an error response; gateways in between may send anything."""
    async with response:
        text = await response.text(errors="replace")
    plain: FailureStatus = {"message": text[:200], "code": response.status}
    try:
        status = orjson.loads(text)
    except orjson.JSONDecodeError:
        return plain
    return {**plain, **status, "code": response.status} if isinstance(status, dict) else plain


class ExpiredError(OperatorError):
    """The resourceVersion or continue token is too old (410): list again."""


_BY_CODE: Mapping[int, type[OperatorError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: GoneError,
    405: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    415: InvalidError,
    416: GoneError,
    422: InvalidError,
}


def failure(what: str, status: FailureStatus) -> OperatorError:
    """The error for a Kubernetes `Status` object; `what` names the call, e.g. `POST /api/v1/…/pods`.

    Codes that are not listed (429, 5xx) mean that a later retry may help.
    """
    code = int(status.get("code") or 0)
    kind = _BY_CODE.get(code, TargetUnreachableError)
    reason = status.get("message") or status.get("reason") or "no reason given"
    hint = ": it does not know the token or certificate, or no longer does" if code == 401 else ""
    return kind(f"{what}: the API server answered {code}: {reason}{hint}")


def pause_asked(code: int, headers: Mapping[str, str]) -> float | None:
    """Seconds until the API server wants the next try (429 and 5xx with `Retry-After`); None: it names none.

    It never sends the date that HTTP also allows; gateways in between may, and are treated as if they sent nothing.
    """
    asked = headers.get("Retry-After", "")
    return float(asked) if (code == 429 or code >= 500) and asked.isdecimal() else None
