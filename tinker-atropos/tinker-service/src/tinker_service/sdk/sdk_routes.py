"""The HTTP API: what the tinker SDK 0.38 calls under /api/v1. A route parses, calls the service and answers."""

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tinker import types

from tinker_service.checkpoint_store import CheckpointRecord, Kind, Location, TrainingRunRecord
from tinker_service.downloads import Downloads
from tinker_service.model.registry import model_id_of, session_of
from tinker_service.model.sampling.sample_jobs import SampleAnswer
from tinker_service.model.training import LossOutput
from tinker_service.sdk.futures import Futures, RequestKey, new_id
from tinker_service.sdk.operations import Service, check_ttl
from tinker_service.sdk.sdk_messages import loss_output_message, parse_forward_backward, sample_message
from tinker_service.service_errors import CANCELLED, RequestError
from tinker_service.service_http import json_response

Endpoint = Callable[[Request], Awaitable[Response]]
_Item = TypeVar("_Item")

PREFIX = "/api/v1"
PROBES = frozenset({f"{PREFIX}/healthz", "/healthz", "/metrics"})
LONG_POLL_SECONDS = 20.0
PROTOBUF = "application/x-protobuf"

# Chunks of one forward_backward arrive one after the other: gradients are summed in a fixed order.
CLIENT_CONFIG = {"pjwt_auth_enabled": False, "proto_compress_fwdbwd": False, "parallel_fwdbwd_chunks": False}
DYNAMIC_CONFIG = {"sample_cancel_enabled": True}


def service_app(service: Service, futures: Futures, downloads: Downloads) -> Starlette:
    api = _Api(service, futures)
    operations: dict[
        str, tuple[Callable[[bytes], Any], Callable[[Any], Future[Any]]]
    ] = {  # each is answered with the id of its future
        "/create_model": (types.CreateModelRequest.model_validate_json, service.create_model),
        "/load_weights": (types.LoadWeightsRequest.model_validate_json, service.load_weights),
        "/forward_backward": (parse_forward_backward, service.forward_backward),
        "/optim_step": (types.OptimStepRequest.model_validate_json, service.optim_step),
        "/save_weights": (types.SaveWeightsRequest.model_validate_json, service.save_weights),
        "/save_weights_for_sampler": (
            types.SaveWeightsForSamplerRequest.model_validate_json,
            service.save_weights_for_sampler,
        ),
        "/save_weights_external": (
            types.SaveWeightsExternalRequest.model_validate_json,
            service.save_weights_external,
        ),
    }
    posts = {  # they are tried in turn: the most frequent ones first
        "/asample": api.sample,
        "/retrieve_future": api.retrieve_future,
        **{path: api.operation(*operation) for path, operation in operations.items()},
        "/client/config": api.client_config,
        "/client/dynamic_config": api.dynamic_config,
        "/telemetry": api.telemetry,
        "/create_session": api.create_session,
        "/session_heartbeat": api.session_heartbeat,
        "/sessions/{session_id}/finish": api.finish_session,
        "/get_info": api.get_info,
        "/create_sampling_session": api.create_sampling_session,
        "/cancel_future": api.cancel_future,
        "/weights_info": api.weights_info,
    }
    runs = f"{PREFIX}/training_runs"
    checkpoint = f"{runs}/{{run}}/checkpoints/{{kind}}/{{name}}"
    return Starlette(
        routes=[
            *(Route(PREFIX + path, handler, methods=["POST"]) for path, handler in posts.items()),
            Route(f"{PREFIX}/healthz", api.healthz),
            Route("/healthz", api.healthz),
            Route("/metrics", api.metrics),
            Route(f"{PREFIX}/get_server_capabilities", api.capabilities),
            Route(f"{PREFIX}/samplers/{{sampler_id}}", api.sampler),
            Route(f"{PREFIX}/sessions", api.list_sessions),
            Route(f"{PREFIX}/sessions/{{session_id}}", api.show_session),
            Route(f"{PREFIX}/checkpoints", api.list_all),
            Route(runs, api.list_runs),
            Route(f"{runs}/{{run}}", api.show_run),
            Route(f"{runs}/{{run}}/checkpoints", api.list_of_run),
            Route(checkpoint, api.delete, methods=["DELETE"]),
            Route(f"{checkpoint}/ttl", api.set_ttl, methods=["PUT"]),
            Route(f"{checkpoint}/external_weights_urls", downloads.sign),
            downloads.route,
        ],
        exception_handlers={
            RequestError: _request_error,
            ValidationError: _validation_error,
            HTTPException: _http_error,
            Exception: _server_error,
        },
    )


_TYPES: dict[Kind, str] = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}


class _WeightsInfoBody(BaseModel):
    tinker_path: str


class _TtlBody(BaseModel):
    ttl_seconds: int | None


class _Api:
    def __init__(self, service: Service, futures: Futures) -> None:
        self._service = service
        self._futures = futures
        self._store = service.store

    async def healthz(self, _request: Request) -> Response:
        return json_response({"status": "ok"})

    async def metrics(self, _request: Request) -> Response:
        return Response(self._service.metrics.render(), media_type="text/plain; version=0.0.4")

    async def client_config(self, _request: Request) -> Response:
        """The SDK asks on a separate connection that it neither uses again nor closes: the service closes it."""
        answer = json_response(CLIENT_CONFIG)
        answer.headers["Connection"] = "close"
        return answer

    async def dynamic_config(self, _request: Request) -> Response:
        return json_response(DYNAMIC_CONFIG)

    async def telemetry(self, _request: Request) -> Response:
        """The SDK reports to the server that it talks to; nothing is stored."""
        return json_response({"status": "accepted"})

    async def capabilities(self, _request: Request) -> Response:
        engine = self._service.engine
        model = {
            "model_name": engine.base.name,
            "max_context_length": engine.context,
            "trainable": True,
            "sampleable": True,
        }
        return json_response({"supported_models": [model]})

    async def create_session(self, _request: Request) -> Response:
        session_id = uuid.uuid4().hex
        self._service.registry.touch(session_id)
        return json_response({"type": "create_session", "session_id": session_id})

    async def session_heartbeat(self, request: Request) -> Response:
        body = types.SessionHeartbeatRequest.model_validate_json(await request.body())
        self._service.registry.touch(body.session_id)
        return json_response({"type": "session_heartbeat"})

    async def finish_session(self, request: Request) -> Response:
        self._service.registry.end_session(request.path_params["session_id"])
        return json_response({})

    async def list_sessions(self, request: Request) -> Response:
        """Live sessions, newest first."""
        sessions, _ = page(request, self._service.registry.sessions[::-1])
        return json_response({"sessions": sessions})

    async def show_session(self, request: Request) -> Response:
        return json_response(self._service.session(request.path_params["session_id"]))

    async def get_info(self, request: Request) -> Response:
        body = types.GetInfoRequest.model_validate_json(await request.body())
        return json_response(self._service.model_info(body.model_id))

    async def create_sampling_session(self, request: Request) -> Response:
        """The one operation that is answered without a future."""
        body = types.CreateSamplingSessionRequest.model_validate_json(await request.body())
        return json_response(await asyncio.wrap_future(self._service.create_sampling_session(body)))

    async def sampler(self, request: Request) -> Response:
        sampler = self._service.registry.sampler(request.path_params["sampler_id"])
        # The folder, not the name: the SDK loads the sampling client's tokenizer from it.
        base_model = str(self._service.engine.base.folder)
        return json_response(
            {"sampler_id": sampler.sampler_id, "base_model": base_model, "model_path": sampler.model_path}
        )

    async def sample(self, request: Request) -> Response:
        body = types.SampleRequest.model_validate_json(await request.body())
        key = _request_key(body)
        known = self._futures.known(key)
        request_id = known or new_id()
        sequence_ids = [f"{request_id}-{index}" for index in range(body.num_samples)]
        if known is None:
            self._futures.add(key, self._service.sample(body, sequence_ids), request_id)
        return json_response({"request_id": request_id, "sample_sequence_ids": sequence_ids})

    async def retrieve_future(self, request: Request) -> Response:
        request_id = types.FutureRetrieveRequest.model_validate_json(await request.body()).request_id
        if owner := self._futures.owner(request_id):
            self._service.registry.touch_living(session_of(owner))
        future = await self._futures.wait(request_id, LONG_POLL_SECONDS)
        if future is None:
            no_space = self._service.store.no_space
            queue = {"queue_state": "paused_capacity" if no_space else "active", "queue_state_reason": no_space}
            return json_response({"type": "try_again", "request_id": request_id, **queue}, 408)
        return _result_response(future)

    async def cancel_future(self, request: Request) -> Response:
        self._futures.cancel(types.FutureRetrieveRequest.model_validate_json(await request.body()).request_id)
        return json_response({})

    # The REST client: training runs, checkpoints, their metadata and expiry, in pages.

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
        self._store.delete(Location.of(**request.path_params))
        return Response(status_code=204)

    async def set_ttl(self, request: Request) -> Response:
        ttl_seconds = _TtlBody.model_validate_json(await request.body()).ttl_seconds
        check_ttl(ttl_seconds)
        self._store.set_expiry(Location.of(**request.path_params), ttl_seconds)
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

    def operation(self, parse: Callable[[bytes], Any], start: Callable[[Any], Future[Any]]) -> Endpoint:
        """Start the operation, unless the same request is already in progress, and return its future's id."""

        @functools.wraps(start)  # metrics call it by the operation's name
        async def submit(request: Request) -> Response:
            body = parse(await request.body())
            key = _request_key(body)
            return json_response({"request_id": self._futures.known(key) or self._futures.add(key, start(body))})

        return submit


def _request_key(body: Any) -> RequestKey | None:
    match body:
        case types.CreateModelRequest():
            return model_id_of(body.session_id, body.model_seq_id), 0
        case types.LoadWeightsRequest():
            return body.model_id or model_id_of(body.session_id or "", body.model_seq_id or 0), body.seq_id or 0
        case types.SampleRequest():
            owner = body.sampling_session_id or ""
        case _:
            owner = body.model_id
    return None if body.seq_id is None else (owner, body.seq_id)


def _result_response(future: Future[Any]) -> Response:
    if future.cancelled():
        return json_response({"error": CANCELLED, "category": "user"})
    error = future.exception()
    if isinstance(error, RequestError):
        return json_response({"error": str(error), "category": error.category})
    if error is not None:
        return json_response({"error": f"{_FAILED} ({type(error).__name__}: {error})", "category": "server"})
    result = future.result()
    if isinstance(result, LossOutput):
        return Response(loss_output_message(result), media_type=PROTOBUF)
    if isinstance(result, SampleAnswer):
        return Response(sample_message(result), media_type=PROTOBUF)
    return json_response(result)


_FAILED = "the Tinker service failed; its log has the details"


async def _request_error(_request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, RequestError) else 422
    return json_response({"detail": str(error)}, status)


async def _validation_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ValidationError):
        return await _server_error(request, error)
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"])) or "the body"
    return json_response({"detail": f"{field}: {first['msg']}; this service speaks to the tinker SDK 0.38"}, 422)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = f"{request.method} {request.url.path} is not served by this Tinker service (it has what training needs)"
    return json_response({"detail": detail}, status)


async def _server_error(_request: Request, error: Exception) -> Response:
    return json_response({"detail": f"{_FAILED} ({type(error).__name__})"}, 500)


DEFAULT_LIMIT = 100


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
