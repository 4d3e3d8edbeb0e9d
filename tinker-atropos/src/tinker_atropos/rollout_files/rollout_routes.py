"""`GET /rollouts` and `GET /rollouts/NAME`: the files of a store, for readers; with `Range`, what they lack of one."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.rollout_files.rollout_store import RolloutStore
from tinker_atropos.serving import json_response

MEDIA_TYPE = "application/zstd"

_RANGE: Final = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
"""Readers of files that grow ask for what follows a byte. Other forms are answered with the whole file, as RFC 9110
allows.
"""


def rollout_routes(store: RolloutStore, state: Callable[[], dict[str, Any]]) -> list[Route]:
    """`state` gives `every` and `note` of the listing."""

    async def list_files(_request: Request) -> Response:
        try:
            sizes = await asyncio.to_thread(store.names)
        except OSError as error:
            return json_response({"error": f"the rollouts cannot be listed: {error}"}, 503)
        files = [{"name": name, "bytes": sizes[name]} for name in sorted(sizes)]
        return json_response({"files": files, **state()})

    async def send_file(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            content = await asyncio.to_thread(store.read, name)
        except FileNotFoundError:
            return json_response({"error": f"there is no file {name!r}; GET /rollouts lists them"}, 404)
        except OSError as error:
            return json_response({"error": f"{name} cannot be read: {error}"}, 503)
        return _part(name, content, request.headers.get("range", ""))

    return [Route("/rollouts", list_files), Route("/rollouts/{name}", send_file)]


def _part(name: str, content: bytes, asked: str) -> Response:
    """What of the file `asked`, a `Range`, names: 206, or 416 if the file ends before it; else all of it."""
    headers, size = {"Accept-Ranges": "bytes"}, len(content)
    found = _RANGE.fullmatch(asked)
    first, last = (int(found[1]), int(found[2] or size - 1)) if found else (0, -1)
    if found is None or (found[2] and last < first):
        return Response(content, headers=headers, media_type=MEDIA_TYPE)
    if first >= size:
        answer = json_response({"error": f"{name} has {size} bytes, and {asked!r} begins after them"}, 416)
        answer.headers["Content-Range"] = f"bytes */{size}"
        return answer
    last = min(last, size - 1)
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Response(content[first : last + 1], 206, headers, MEDIA_TYPE)
