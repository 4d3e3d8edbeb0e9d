"""The SDK's REST client: training runs, checkpoints, their metadata and expiry, in pages."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_service.checkpoint_store import (
    CheckpointRecord,
    CheckpointStore,
    Kind,
    Location,
    TrainingRunRecord,
)
from tinker_service.downloads import Downloads
from tinker_service.sdk.operations import Service, check_ttl
from tinker_service.service_errors import RequestError
from tinker_service.service_http import json_response

_TYPES: dict[Kind, str] = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}


class _WeightsInfoBody(BaseModel):
    tinker_path: str


class _TtlBody(BaseModel):
    ttl_seconds: int | None


def checkpoint_routes(prefix: str, service: Service, downloads: Downloads) -> list[Route]:
    routes = _CheckpointRoutes(service.store)
    runs = f"{prefix}/training_runs"
    checkpoint = f"{runs}/{{run}}/checkpoints/{{kind}}/{{name}}"
    return [
        Route(f"{prefix}/weights_info", routes.weights_info, methods=["POST"]),
        Route(f"{prefix}/checkpoints", routes.list_all),
        Route(runs, routes.list_runs),
        Route(f"{runs}/{{run}}", routes.show_run),
        Route(f"{runs}/{{run}}/checkpoints", routes.list_of_run),
        Route(checkpoint, routes.delete, methods=["DELETE"]),
        Route(f"{checkpoint}/ttl", routes.set_ttl, methods=["PUT"]),
        Route(f"{checkpoint}/external_weights_urls", downloads.sign),
        downloads.route,
    ]


class _CheckpointRoutes:
    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    async def weights_info(self, request: Request) -> Response:
        body = _WeightsInfoBody.model_validate_json(await request.body())
        record = self._store.record(Location.parse(body.tinker_path))
        return json_response(
            {
                "base_model": record.base_model,
                "is_lora": True,
                "lora_rank": record.rank,
                "train_attn": record.train_attn,
                "train_mlp": record.train_mlp,
                "train_unembed": record.train_unembed,
            }
        )

    async def list_runs(self, request: Request) -> Response:
        records = self._store.runs()
        shown, cursor = page(request, records)
        return json_response({"training_runs": [self._run_wire(record) for record in shown], "cursor": cursor})

    async def show_run(self, request: Request) -> Response:
        return json_response(self._run_wire(self._store.run(request.path_params["run"])))

    async def list_of_run(self, request: Request) -> Response:
        run = self._store.run(request.path_params["run"])
        records = self._store.checkpoints(run.training_run_id)
        return json_response({"checkpoints": [self._checkpoint_wire(record) for record in records]})

    async def list_all(self, request: Request) -> Response:
        """Checkpoints of all runs, newest first."""
        records = [record for run in self._store.runs() for record in self._store.checkpoints(run.training_run_id)]
        records.sort(key=lambda record: record.created_at, reverse=True)
        shown, cursor = page(request, records)
        return json_response({"checkpoints": [self._checkpoint_wire(record) for record in shown], "cursor": cursor})

    async def delete(self, request: Request) -> Response:
        self._store.delete(_location(request))
        return Response(status_code=204)

    async def set_ttl(self, request: Request) -> Response:
        ttl_seconds = _TtlBody.model_validate_json(await request.body()).ttl_seconds
        check_ttl(ttl_seconds)
        self._store.set_expiry(_location(request), ttl_seconds)
        return json_response({})

    def _checkpoint_wire(self, record: CheckpointRecord) -> dict[str, Any]:
        location = Location.parse(record.tinker_path)
        return {
            "checkpoint_id": f"{location.kind}/{location.name}",
            "checkpoint_type": _TYPES[location.kind],
            "time": record.created_at,
            "tinker_path": record.tinker_path,
            "size_bytes": self._store.size_bytes(location),
            "user_metadata": record.user_metadata,
            "expires_at": record.expires_at,
        }

    def _run_wire(self, run: TrainingRunRecord) -> dict[str, Any]:
        records = self._store.checkpoints(run.training_run_id)
        latest = {Location.parse(record.tinker_path).kind: record for record in records}
        wires = {kind: self._checkpoint_wire(record) for kind, record in latest.items()}
        return {
            "training_run_id": run.training_run_id,
            "base_model": run.base_model,
            "model_owner": "tinker-service",
            "is_lora": True,
            "lora_rank": run.lora_rank,
            "last_request_time": records[-1].created_at if records else run.created_at,
            "last_checkpoint": wires.get("weights"),
            "last_sampler_checkpoint": wires.get("sampler_weights"),
            "user_metadata": run.user_metadata,
        }


def _location(request: Request) -> Location:
    params = request.path_params
    return Location.parse(f"tinker://{params['run']}/{params['kind']}/{params['name']}")


DEFAULT_LIMIT = 100

_Item = TypeVar("_Item")


def page(request: Request, items: Sequence[_Item]) -> tuple[Sequence[_Item], dict[str, int]]:
    offset, limit = (
        _query_integer(request, name, default) for name, default in (("offset", 0), ("limit", DEFAULT_LIMIT))
    )
    return items[offset : offset + limit], {"offset": offset, "limit": limit, "total_count": len(items)}


def _query_integer(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal():
        raise RequestError(f"{name} is {text!r}; it must be an integer")
    return int(text)
