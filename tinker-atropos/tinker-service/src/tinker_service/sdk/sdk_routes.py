"""The HTTP API: what the tinker SDK 0.38 calls under /api/v1. A route parses, calls the service and answers."""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tinker import types

from tinker_service.downloads import Downloads
from tinker_service.model.registry import model_id_of, session_of
from tinker_service.model.sampling.sample_jobs import SampleAnswer
from tinker_service.model.training import LossOutput
from tinker_service.sdk.checkpoint_routes import checkpoint_routes, page
from tinker_service.sdk.futures import Futures, RequestKey, new_id
from tinker_service.sdk.operations import Service
from tinker_service.sdk.sdk_messages import loss_output_message, parse_forward_backward, sample_message
from tinker_service.service_errors import CANCELLED, RequestError
from tinker_service.service_http import json_response

PREFIX = "/api/v1"
PROBES = frozenset({f"{PREFIX}/healthz", "/healthz", "/metrics"})
LONG_POLL_SECONDS = 20.0
PROTOBUF = "application/x-protobuf"

# Chunks of one forward_backward arrive one after the other: gradients are summed in a fixed order.
CLIENT_CONFIG = {"pjwt_auth_enabled": False, "proto_compress_fwdbwd": False, "parallel_fwdbwd_chunks": False}
DYNAMIC_CONFIG = {"sample_cancel_enabled": True}


def service_app(service: Service, futures: Futures, downloads: Downloads) -> Starlette:
    api = _Api(service, futures)
    posts = {  # they are tried in turn: the most frequent ones first
        "/asample": api.sample,
        "/retrieve_future": api.retrieve_future,
        "/client/config": api.client_config,
        "/client/dynamic_config": api.dynamic_config,
        "/telemetry": api.telemetry,
        "/create_session": api.create_session,
        "/session_heartbeat": api.session_heartbeat,
        "/sessions/{session_id}/finish": api.finish_session,
        "/create_model": api.create_model,
        "/get_info": api.get_info,
        "/load_weights": api.load_weights,
        "/forward_backward": api.forward_backward,
        "/optim_step": api.optim_step,
        "/save_weights": api.save_weights,
        "/save_weights_for_sampler": api.save_weights_for_sampler,
        "/save_weights_external": api.save_weights_external,
        "/create_sampling_session": api.create_sampling_session,
        "/cancel_future": api.cancel_future,
    }
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
            *checkpoint_routes(PREFIX, service, downloads),
        ],
        exception_handlers={
            RequestError: _request_error,
            ValidationError: _validation_error,
            HTTPException: _http_error,
            Exception: _server_error,
        },
    )


class _Api:
    def __init__(self, service: Service, futures: Futures) -> None:
        self._service = service
        self._futures = futures

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

    async def create_model(self, request: Request) -> Response:
        body = types.CreateModelRequest.model_validate_json(await request.body())
        key = (model_id_of(body.session_id, body.model_seq_id), 0)
        return self._submitted(key, lambda: self._service.create_model(body))

    async def get_info(self, request: Request) -> Response:
        body = types.GetInfoRequest.model_validate_json(await request.body())
        return json_response(self._service.model_info(body.model_id))

    async def load_weights(self, request: Request) -> Response:
        body = types.LoadWeightsRequest.model_validate_json(await request.body())
        key = (body.model_id or model_id_of(body.session_id or "", body.model_seq_id or 0), body.seq_id or 0)
        return self._submitted(key, lambda: self._service.load_weights(body))

    async def forward_backward(self, request: Request) -> Response:
        body = parse_forward_backward(await request.body())
        return self._submitted((body.model_id, body.seq_id), lambda: self._service.forward_backward(body))

    async def optim_step(self, request: Request) -> Response:
        body = types.OptimStepRequest.model_validate_json(await request.body())
        return self._submitted(_key(body.model_id, body.seq_id), lambda: self._service.optim_step(body))

    async def save_weights(self, request: Request) -> Response:
        body = types.SaveWeightsRequest.model_validate_json(await request.body())
        return self._submitted(_key(body.model_id, body.seq_id), lambda: self._service.save_weights(body))

    async def save_weights_for_sampler(self, request: Request) -> Response:
        body = types.SaveWeightsForSamplerRequest.model_validate_json(await request.body())
        return self._submitted(_key(body.model_id, body.seq_id), lambda: self._service.save_weights_for_sampler(body))

    async def save_weights_external(self, request: Request) -> Response:
        body = types.SaveWeightsExternalRequest.model_validate_json(await request.body())
        return self._submitted(_key(body.model_id, body.seq_id), lambda: self._service.save_weights_external(body))

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
        key = _key(body.sampling_session_id or "", body.seq_id)
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
            return json_response({"type": "try_again", "request_id": request_id, "queue_state": "active"}, 408)
        return _result_response(future)

    async def cancel_future(self, request: Request) -> Response:
        self._futures.cancel(types.FutureRetrieveRequest.model_validate_json(await request.body()).request_id)
        return json_response({})

    def _submitted(self, key: RequestKey | None, start: Callable[[], Future[Any]]) -> Response:
        """Start the operation, unless the same request is already in progress, and return its future's id."""
        return json_response({"request_id": self._futures.known(key) or self._futures.add(key, start())})


def _key(owner: str, seq_id: int | None) -> RequestKey | None:
    return None if seq_id is None else (owner, seq_id)


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
