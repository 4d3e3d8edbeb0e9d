"""`GET /rollouts` and `GET /rollouts/NAME`: the files of a store, for readers."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.rollout_files.rollout_store import RolloutStore
from tinker_atropos.serving import json_response

MEDIA_TYPE = "application/zstd"


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
            return Response(await asyncio.to_thread(store.read, name), media_type=MEDIA_TYPE)
        except FileNotFoundError:
            return json_response({"error": f"there is no file {name!r}; GET /rollouts lists them"}, 404)
        except OSError as error:
            return json_response({"error": f"{name} cannot be read: {error}"}, 503)

    return [Route("/rollouts", list_files), Route("/rollouts/{name}", send_file)]
