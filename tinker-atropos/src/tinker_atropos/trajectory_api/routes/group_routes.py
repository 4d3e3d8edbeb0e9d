"""`POST /scored_data` and `/scored_data_list`: check the groups, store the good ones, count the bad ones.

A client drops a group for good if the answer is 4xx, so 4xx is only for what can never succeed, and is counted under
the field that is wrong. A repeated POST (same `Idempotency-Key`, else same content) gets the answer of the first.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from rl_contract.scored_group import ScoredGroup
from tinker_atropos.serving import json_response
from tinker_atropos.trajectory_api.messages.bodies import ApiRefusal, JsonBody, parse, read_body, split_list, strict
from tinker_atropos.trajectory_api.messages.records import NewGroupState, PostedGroups, ReceivedGroup, RefusedGroup
from tinker_atropos.trajectory_api.messages.requests import TrainerRegistration
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService

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
    """Store the body's good groups and count its bad ones. Raises the first ApiRefusal if none is good."""
    service = _service(request)
    try:
        bodies = split(await read_body(request, request.app.state.max_body_bytes))
    except ApiRefusal as refusal:  # one refused group, of unknown size
        await service.deliver(PostedGroups(refused=(RefusedGroup(refusal.reason, 0),)))
        raise
    groups: list[ReceivedGroup] = []
    refusals: list[ApiRefusal] = []
    refused: list[RefusedGroup] = []
    for body, key in zip(bodies, _keys(request, bodies), strict=True):
        try:
            groups.append(_check(body, key, service.registration))
        except ApiRefusal as refusal:
            refusals.append(refusal)
            refused.append(RefusedGroup(refusal.reason, _sequences(body)))
    states = await service.deliver(PostedGroups(tuple(groups), tuple(refused)))
    if refusals and not groups:
        raise refusals[0]
    return list(zip(groups, states, strict=True)), refusals


def _check(body: JsonBody, key: str, registration: TrainerRegistration | None) -> ReceivedGroup:
    group = parse(ScoredGroup, body.json)
    if registration is not None:
        _check_sizes(group, registration)
    kept = strict(body)
    return ReceivedGroup(group.env_id, group.rollout_count, group.largest_token, kept.sent, kept.gzipped, key)


def _check_sizes(group: ScoredGroup, registration: TrainerRegistration) -> None:
    if group.rollout_count > registration.batch_size:
        raise ApiRefusal(
            422,
            "larger_than_batch",
            f"tokens has {group.rollout_count} rollouts; a batch holds {registration.batch_size} (batch_size)",
        )
    if registration.vocabulary is not None and (sentence := group.outside_vocabulary(registration.vocabulary)):
        raise ApiRefusal(422, "tokens", sentence)


def _keys(request: Request, bodies: Sequence[JsonBody]) -> Iterator[str]:
    """The key by which each group of a POST is recognized when it is sent again.

    Equal groups within one POST are different groups: a repeat repeats the whole POST.
    """
    if header := request.headers.get("idempotency-key"):
        yield from (_digest(f"key {position} {header}".encode()) for position in range(len(bodies)))
        return
    seen: Counter[str] = Counter()
    for body in bodies:
        digest = _digest(body.json)
        yield f"{digest} {seen[digest]}"
        seen[digest] += 1


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _sequences(body: JsonBody) -> int:
    """How many rollouts a refused group counts as: the rows of `tokens`, or 0 if there are none."""
    try:
        group = from_json(body.json)
    except ValueError:
        return 0
    tokens = group.get("tokens") if isinstance(group, dict) else None
    return len(tokens) if isinstance(tokens, list) else 0


def _service(request: Request) -> TrajectoryService:
    service: TrajectoryService = request.app.state.service
    return service
