"""The trajectory API's routes: read the request, call the service, write the answer.

There is no `/reset_data` (one GET would wipe the run) and no CORS: browsers are not clients.

Who may call which route, and what harm a hostile environment can still do.

If environments run in their own pods, this port is not limited to loopback, and environments may be untrusted code.
The trainer is in the same pod as the api: so its routes only accept peers on loopback (by the connection's own
address, not a header); all others get a 403.

| route | for | why, and what harm is left |
|---|---|---|
| `GET /` | anyone | says which protocol this is |
| `POST /register-env`, `/disconnect-env` | environments | at most MAX_ENVIRONMENTS numbers; one can report that another has left |
| `GET /wandb_info`, `/info`, `/status` | environments | names of a W&B project and group, sizes, the step: each of them gets all of it anyway |
| `GET /status-env` | environments | a pace; one can keep another's number alive |
| `POST /scored_data`, `/scored_data_list` | environments | groups with any scores, under any number: that is an environment's purpose; bounded by body, vocabulary, batch and journal |
| `PUT /rl/lease/environment` | environments | at most MAX_LEASES at a time; one can report that it is alive or failed |
| `GET /rl/lease/environment` | environments | a connection that stays open while its process lives |
| `POST /rl/metrics` | environments | any metric, including an evaluation's, but none of the trainer's (`trainer/reporting/relay.py`); at most MAX_METRICS names and METRICS_BODY_BYTES per report, METRICS_KEPT reports |
| `POST /rl/items` | environments | one can take items out of the run's order, and say that they ended: they are not trained; at most MOST_UNDER_WAY at a time |
| `POST /register`, `GET /batch`, `POST /rl/drop`, `/rl/progress` | trainer | would wipe, steal, drop or end the run |
| `PUT /rl/lease/trainer`, `GET` | trainer | would end the run for everyone |
| `GET /rl/books`, `/rl/items/state`, `/rl/metrics`, `/latest_example` | trainer | counts, metrics and rollouts of all environments: no other client needs them |

So a hostile environment can spoil, stall or end its own run, which it could do by its scores alone, and drive this
process to its container's limits: connections, POSTs that wait for room (each holds its body) and the request rate are
not bounded here. It cannot reach any key, another run, or the trainer's record of what was trained.

An environment in the run's own pod (a bundled one) is on loopback and trusted as the trainer is. What is beside an
environment in its pod, but is none (an OpenEnv server), is kept out by the path (`serving.py`).
"""  # noqa: E501 -- a table

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rl_contract.processes import NO_SPACE_STATUS
from tinker_atropos.serving import is_loopback, json_response, peer_of
from tinker_atropos.trajectory_api.messages.bodies import (
    MAX_BODY_BYTES,
    METRICS_BODY_BYTES,
    ApiRefusal,
    JsonBody,
    checked_group,
    count_rollouts,
    group_keys,
    number,
    read,
    read_body,
    split_list,
    step_of,
)
from tinker_atropos.trajectory_api.messages.requests import (
    DropRequest,
    EnvIdentifier,
    EnvRegistration,
    ItemsRequest,
    LeaseReport,
    MetricsReport,
    NewGroupState,
    PostedGroups,
    ProgressReport,
    ReceivedGroup,
    RefusedGroup,
    StepBatch,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.service.held_leases import PEERS, Role, lease_key
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.batches import latest_group
from tinker_atropos.trajectory_api.store.books import oldest_queued_at, read_books
from tinker_atropos.trajectory_api.store.items import item_books
from tinker_atropos.trajectory_api.store.journal import DiskFullError, JournalError
from tinker_atropos.trajectory_api.store.run_record import metrics_after

Endpoint = Callable[[Request], Awaitable[Response]]


def trainers_only(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route that answers the same machine only."""

    async def guarded(request: Request) -> Response:
        if not is_loopback(request.scope):
            raise ApiRefusal(
                403,
                "not_local",
                f"{method} {path} is for the run's trainer, which calls it on loopback; this request came from "
                f"{peer_of(request.scope)}: an environment has no need of it",
            )
        return await endpoint(request)

    return Route(path, guarded, methods=[method])


MAX_WAIT_SECONDS = 30.0
NDJSON = "application/x-ndjson"
NO_EXAMPLE: dict[str, list[Any]] = {
    field: []
    for field in (
        *("tokens", "masks", "scores", "advantages", "ref_logprobs"),
        *("generation_params", "inference_logprobs", "messages", "images"),
    )
}


async def show_root(_request: Request) -> Response:
    return json_response({"message": "trajectory API (atroposlib 0.4.0 protocol)"})


async def register(request: Request) -> Response:
    await _service(request).register(await read(TrainerRegistration, request))
    return json_response({"uuid": secrets.randbits(63)})


async def register_env(request: Request) -> Response:
    service = _service(request)
    env = await service.register_env(await read(EnvRegistration, request))
    if env is None or service.registration is None:
        return json_response({"status": "wait for trainer to start"})
    return json_response(
        {
            "status": "success",
            "env_id": env.env_id,
            "wandb_name": env.wandb_name,
            "checkpoint_dir": service.registration.checkpoint_dir,
            "starting_step": service.current_step,
            "checkpoint_interval": service.registration.save_checkpoint_interval,
            "num_steps": service.registration.num_steps,
        }
    )


async def disconnect_env(request: Request) -> Response:
    env_id = (await read(EnvIdentifier, request)).env_id
    if await _service(request).disconnect_env(env_id):
        return json_response({"status": "success"})
    return json_response({"status": "failure", "error": f"env_id {env_id} is not registered"})


async def show_wandb(request: Request) -> Response:
    registration = _service(request).registration
    if registration is None:
        return json_response({"group": None, "project": None})
    return json_response({"group": registration.wandb_group, "project": registration.wandb_project})


async def show_sizes(request: Request) -> Response:
    registration = _service(request).registration
    if registration is None:
        return json_response({"batch_size": -1, "max_token_len": -1})
    return json_response({"batch_size": registration.batch_size, "max_token_len": registration.max_token_len})


async def show_status(request: Request) -> Response:
    return json_response(_service(request).status())


async def show_env_status(request: Request) -> Response:
    env_id = (await read(EnvIdentifier, request)).env_id
    return json_response(_service(request).status_of_env(env_id))


async def take_batch(request: Request) -> Response:
    """Waits at most `wait` seconds for a full batch; without it, answers immediately as upstream. `step`: which batch.

    A client that accepts NDJSON gets one line per group, and can decode them one by one.
    """
    service = _service(request)
    wait_seconds = min(number(request, "wait", 0.0), MAX_WAIT_SECONDS)
    step = step_of(request)
    if service.registration is None:
        return json_response({"batch": None, "message": "no trainer has registered; POST /register first"})
    batch = await service.take_batch(step, wait_seconds, request.is_disconnected)
    if NDJSON in request.headers.get("accept", ""):
        return Response(_batch_lines(batch, step), media_type=NDJSON)
    return Response(_batch_json(batch, step), media_type="application/json")


def _batch_lines(batch: StepBatch, step: int | None) -> bytes:
    """`{"ids": …, "received_at": …, "step": …}` and the groups, one per line; `{"batch": null}` without a batch."""
    given = {"ids": batch.group_ids, "received_at": batch.received_at, "step": step}
    head = {"batch": None} if batch.missing else given
    return b"\n".join([orjson.dumps(head), *(_on_one_line(content) for content in batch.contents)])


def _on_one_line(content: bytes) -> bytes:
    """The JSON as sent may contain line breaks, but only between values."""
    return orjson.dumps(orjson.loads(content)) if b"\n" in content else content


def _batch_json(batch: StepBatch, step: int | None) -> bytes:
    groups = b"null" if batch.missing else b"[" + b",".join(batch.contents) + b"]"
    ours = b"" if step is None else b',"ids":%b,"step":%d' % (orjson.dumps(batch.group_ids), step)
    return b'{"batch":%b%b}' % (groups, ours)


async def show_latest_example(request: Request) -> Response:
    group = _service(request).journal.read(latest_group)
    return Response(group or orjson.dumps(NO_EXAMPLE), media_type="application/json")


async def renew_lease(request: Request, role: Role) -> Response:
    """`evaluated_step`: the newest evaluation that was reported, even if by an environment that is gone, as
    `environment_state` may be.
    """
    service = _service(request)
    await service.renew_lease(role, await read(LeaseReport, request))
    return json_response(
        {
            "self": service.lease(role).to_wire(),
            "peer": service.lease(PEERS[role]).to_wire(),
            "run_over": service.over_reason() is not None,
            "current_step": service.run_state.progress.steps_trained,
            "total_steps": service.registration.num_steps if service.registration else None,
            "no_space": service.no_space(),
            "evaluated_step": service.run_state.evaluated_step,
            "environment_state": service.environment_state,
        }
    )


async def hold_lease(request: Request, role: Role) -> Response:
    """Not answered: while the connection is open, the process lives (`held_connection.py`)."""
    with _service(request).leases.connected(lease_key(role, request.query_params.get("id", ""))):
        while (await request.receive())["type"] != "http.disconnect":
            pass
    return Response(status_code=204)


async def record_progress(request: Request) -> Response:
    service = _service(request)
    await service.record_progress(await read(ProgressReport, request))
    return json_response({"current_step": service.run_state.progress.steps_trained})


async def drop_groups(request: Request) -> Response:
    return json_response({"dropped": await _service(request).drop(await read(DropRequest, request))})


async def show_books(request: Request) -> Response:
    service = _service(request)
    oldest, totals = service.journal.read(oldest_queued_at), service.run_state.progress.totals
    told = {"items": service.journal.read(item_books), "oldest_queued_at": oldest, "totals": totals}
    return json_response({**service.journal.read(read_books), **told})


async def add_metrics(request: Request) -> Response:
    report = await read(MetricsReport, request, METRICS_BODY_BYTES)
    return json_response({"seq": await _service(request).add_metrics(report)})


async def deal_items(request: Request) -> Response:
    return json_response({"positions": await _service(request).deal(await read(ItemsRequest, request))})


async def show_data_position(request: Request) -> Response:
    step = step_of(request)
    if step is None:
        raise ApiRefusal(422, "step", "step is missing; name the step of the checkpoint, such as ?step=25")
    return json_response({"items": await _service(request).data_position(step)})


async def show_metrics(request: Request) -> Response:
    after = int(number(request, "after", 0))
    records = _service(request).journal.read(metrics_after, after)
    return json_response({"records": records, "last": records[-1]["seq"] if records else after})


Stored = tuple[ReceivedGroup, NewGroupState]


async def receive_group(request: Request) -> Response:
    ((group, state),), _ = await _deliver(request, lambda body: [body])
    if state == "buffered":
        return json_response({"status": "buffered", "buffer_size": _service(request).buffered_rollouts(group.env_id)})
    return json_response({"status": "received"})


async def receive_groups(request: Request) -> Response:
    """Good groups of a list are kept even if others are bad: a 4xx would make the client drop them all."""
    stored, refusals = await _deliver(request, split_list)
    answer: dict[str, object] = {"status": "received", "groups_processed": len(stored)}
    if buffered := sum(state == "buffered" for _, state in stored):
        answer["buffered"] = buffered
        answer["last_buffer_size"] = _service(request).buffered_rollouts(stored[-1][0].env_id)
    if refusals:
        answer["refused"] = [str(refusal) for refusal in refusals]
    return json_response(answer)


async def _deliver(
    request: Request, split: Callable[[JsonBody], Sequence[JsonBody]]
) -> tuple[list[Stored], list[ApiRefusal]]:
    """Store the body's good groups and count its bad ones. Raises the first ApiRefusal if none is good.

    A repeated POST (same `Idempotency-Key`, else same content) gets the answer of the first.
    """
    service = _service(request)
    try:
        bodies = split(await read_body(request, request.app.state.max_body_bytes))
    except ApiRefusal as refusal:  # one refused group, of unknown size
        await service.intake.deliver(PostedGroups(refused=(RefusedGroup(refusal.reason, 0),)))
        raise
    groups: list[ReceivedGroup] = []
    refusals: list[ApiRefusal] = []
    refused: list[RefusedGroup] = []
    for body, key in zip(bodies, group_keys(bodies, request.headers.get("idempotency-key")), strict=True):
        try:
            groups.append(checked_group(body, key, service.registration))
        except ApiRefusal as refusal:
            refusals.append(refusal)
            refused.append(RefusedGroup(refusal.reason, count_rollouts(body)))
    states = await service.intake.deliver(PostedGroups(tuple(groups), tuple(refused)))
    if refusals and not groups:
        raise refusals[0]
    return list(zip(groups, states, strict=True)), refusals


ROUTES = [
    Route("/", show_root),
    # For environments.
    Route("/register-env", register_env, methods=["POST"]),
    Route("/disconnect-env", disconnect_env, methods=["POST"]),
    Route("/wandb_info", show_wandb),
    Route("/info", show_sizes),
    Route("/status", show_status),
    Route("/status-env", show_env_status),
    Route("/scored_data", receive_group, methods=["POST"]),
    Route("/scored_data_list", receive_groups, methods=["POST"]),
    Route("/rl/lease/environment", partial(renew_lease, role="environment"), methods=["PUT"]),
    Route("/rl/lease/environment", partial(hold_lease, role="environment")),
    Route("/rl/metrics", add_metrics, methods=["POST"]),
    Route("/rl/items", deal_items, methods=["POST"]),
    # For the trainer.
    trainers_only("/register", register, "POST"),
    trainers_only("/batch", take_batch),
    trainers_only("/latest_example", show_latest_example),
    trainers_only("/rl/lease/trainer", partial(renew_lease, role="trainer"), "PUT"),
    trainers_only("/rl/lease/trainer", partial(hold_lease, role="trainer")),
    trainers_only("/rl/progress", record_progress, "POST"),
    trainers_only("/rl/drop", drop_groups, "POST"),
    trainers_only("/rl/books", show_books),
    trainers_only("/rl/items/state", show_data_position),
    trainers_only("/rl/metrics", show_metrics),
]
"""Who may call them and why: above."""


def trajectory_app(service: TrajectoryService, max_body_bytes: int = MAX_BODY_BYTES) -> Starlette:
    handlers = {ApiRefusal: _refuse, JournalError: _unavailable, ClientDisconnect: _left}
    app = Starlette(routes=ROUTES, exception_handlers=handlers)
    app.state.service = service
    app.state.max_body_bytes = max_body_bytes
    return app


def _service(request: Request) -> TrajectoryService:
    service: TrajectoryService = request.app.state.service
    return service


async def _refuse(_request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, ApiRefusal)
    return json_response({"detail": str(refusal)}, refusal.status_code)


async def _unavailable(_request: Request, error: Exception) -> Response:
    """Clients retry after a 5xx, so a full disk loses nothing."""
    return json_response({"detail": str(error)}, NO_SPACE_STATUS if isinstance(error, DiskFullError) else 503)


async def _left(_request: Request, _error: Exception) -> Response:
    """The client disconnected within its body, like a terminated environment: no answer arrives. Nothing was stored."""
    return json_response({"detail": "the body did not come whole"}, 400)
