"""Files of external checkpoints at signed URLs, which need no key until they expire.

How to export an adapter from the service with the unmodified SDK (`tinker checkpoint download PATH` does the same):

    path = training_client.save_weights_external("export", ttl_seconds=3_600).result().path
    urls = rest_client.get_external_weights_urls(path).result().urls  # {file name: URL}, to be fetched with a plain GET
"""

import hashlib
import hmac
import time
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from tinker_service.checkpoint_store import CheckpointStore, Location
from tinker_service.service_errors import MissingError, RequestError
from tinker_service.service_http import json_response

DOWNLOADS = "/api/v1/downloads/"
VALID_SECONDS = 3_600


class Downloads:
    """Signs URLs and serves them."""

    def __init__(self, store: CheckpointStore, key: str) -> None:
        self._store = store
        self._key = key.encode()

    @property
    def route(self) -> Route:
        return Route(f"{DOWNLOADS}{{run}}/{{name}}/{{file}}", self.download)

    async def sign(self, request: Request) -> Response:
        """The URLs of an external checkpoint's files, on the host that the client used."""
        location = Location.of(**request.path_params)
        if location.kind != "external_weights":
            raise RequestError(f"{location.path} is not external weights; save_weights_external makes them")
        expires = int(time.time()) + VALID_SECONDS
        urls = {}
        for name in self._store.peft_files(location):
            path = f"{DOWNLOADS}{location.training_run_id}/{location.name}/{name}"
            signed = f"expires={expires}&signature={self._signature(path, expires)}"
            urls[name] = str(request.base_url.replace(path=path, query=signed))
        return json_response({"urls": urls, "expires": datetime.fromtimestamp(expires, UTC)})

    async def download(self, request: Request) -> Response:
        params, query = request.path_params, request.query_params
        expires = int(query["expires"]) if query.get("expires", "").isdecimal() else 0
        expected = self._signature(request.url.path, expires)
        if not hmac.compare_digest(query.get("signature", "").encode(), expected.encode()) or expires < time.time():
            raise RequestError("this address is not valid (any more): get_external_weights_urls makes new ones", 403)
        path = self._store.peft_files(Location(params["run"], "external_weights", params["name"])).get(params["file"])
        if path is None:
            raise MissingError(f"there is no file {params['file']!r} in this checkpoint")
        return FileResponse(path)

    def _signature(self, path: str, expires: int) -> str:
        return hmac.new(self._key, f"{path}\n{expires}".encode(), hashlib.sha256).hexdigest()
