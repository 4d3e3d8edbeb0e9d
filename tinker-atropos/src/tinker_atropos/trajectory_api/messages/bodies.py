"""Request bodies and query parameters: size, gzip and JSON, groups, and the common shape of a refusal.

A client drops a group for good if the answer is 4xx. So 4xx is only for what can never succeed, and is counted under
the field that is wrong.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import Request

from rl_contract.scored_group import ScoredGroup
from tinker_atropos.errors import first_fault
from tinker_atropos.serving import read_limited
from tinker_atropos.trajectory_api.messages.requests import ItemOfGroup, ReceivedGroup, TrainerRegistration

MAX_BODY_BYTES = 256 * 2**20
"""Both as sent and decompressed. A group of 64 x 32,768 tokens is about 60 MB of JSON."""

SMALL_BODY_BYTES = 2**20
"""For everything that holds no groups."""

METRICS_BODY_BYTES = 2**16
"""Reports are stored, METRICS_KEPT of them."""

Body = TypeVar("Body", bound=BaseModel)


class ApiRefusal(Exception):  # noqa: N818 -- it is an answer to the client, not a server error
    """A 4xx answer: `reason` is a short label for counters, the message one sentence that names the field."""

    def __init__(self, status_code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A body as sent, and its JSON."""

    sent: bytes
    gzipped: bool
    json: bytes


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> JsonBody:
    """The request's body. GET requests have one too."""
    sent, size = await read_limited(request, limit)
    if size > limit:
        raise ApiRefusal(413, "size", f"the body has {size} bytes; the limit is {limit}: send less at once")
    gzipped = "gzip" in request.headers.get("content-encoding", "").lower()
    return JsonBody(sent, gzipped, _gunzip(sent, limit) if gzipped else sent)


def _gunzip(compressed: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: a gzip header
    try:
        body = decompressor.decompress(compressed, limit)
    except zlib.error as error:
        raise ApiRefusal(400, "gzip", f"the body is not gzip, as content-encoding says: {error}") from None
    if decompressor.unconsumed_tail:
        raise ApiRefusal(413, "size", f"the body has more than {limit} bytes decompressed; send less at once")
    if not decompressor.eof:
        raise ApiRefusal(400, "gzip", "the gzip body ends too early")
    return body


async def read(model: type[Body], request: Request, limit: int = SMALL_BODY_BYTES) -> Body:
    """Read and check a body. Raises ApiRefusal."""
    return parse(model, (await read_body(request, limit)).json)


def parse(model: type[Body], body: bytes | Mapping[str, object]) -> Body:
    """Check a body, or a part of one, against its model. Raises ApiRefusal naming the first field that is wrong."""
    try:
        return model.model_validate_json(body) if isinstance(body, bytes) else model.model_validate(body)
    except ValidationError as error:
        raise _refusal(error, model) from None


def strict(body: JsonBody) -> JsonBody:
    """The same JSON with null for NaN and Infinity, which Python's encoder writes and strict parsers refuse.

    What is stored is passed on without parsing, so one such number in a free-form field would spoil a whole batch.
    """
    may_have = b"N" in body.json or b"I" in body.json  # searching for a byte is ten times faster than for a word
    if not may_have or (b"NaN" not in body.json and b"Infinity" not in body.json):
        return body
    return plain(orjson.dumps(_from_json(body.json)))


def plain(json: bytes) -> JsonBody:
    return JsonBody(sent=json, gzipped=False, json=json)


def split_list(body: JsonBody) -> list[JsonBody]:
    """The elements of a JSON list."""
    elements = _from_json(body.json)
    if not isinstance(elements, list):
        raise ApiRefusal(422, "json", "the body must be a list of groups")
    return [plain(to_json(element, inf_nan_mode="constants")) for element in elements]


def _from_json(body: bytes) -> object:
    try:
        return from_json(body)
    except ValueError as error:
        raise ApiRefusal(400, "json", f"the body is not JSON: {error}") from None


def _refusal(error: ValidationError, model: type[BaseModel]) -> ApiRefusal:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return ApiRefusal(400, "json", f"the body is not JSON: {first['msg']}")
    if not first["loc"]:  # not an object, or a check across fields: its type is the field (scored_group.py)
        return ApiRefusal(422, first["type"] if first["type"] in model.model_fields else "json", first["msg"])
    return ApiRefusal(422, str(first["loc"][0]), first_fault(error))


def checked_group(body: JsonBody, key: str, registration: TrainerRegistration | None) -> ReceivedGroup:
    """Raises ApiRefusal."""
    group = parse(ScoredGroup, body.json)
    if registration is not None:
        _check_sizes(group, registration)
    kept, item = strict(body), parse(ItemOfGroup, group.group_overrides or {})
    return ReceivedGroup(
        group.env_id, group.rollout_count, group.largest_token, kept.sent, kept.gzipped, key, item.position, item.holder
    )


def _check_sizes(group: ScoredGroup, registration: TrainerRegistration) -> None:
    if group.rollout_count > registration.batch_size:
        raise ApiRefusal(
            422,
            "larger_than_batch",
            f"tokens has {group.rollout_count} rollouts; a batch holds {registration.batch_size} (batch_size)",
        )
    if registration.vocabulary is not None and (sentence := group.outside_vocabulary(registration.vocabulary)):
        raise ApiRefusal(422, "tokens", sentence)


def group_keys(bodies: Sequence[JsonBody], header: str | None) -> Iterator[str]:
    """The key by which each group of a POST is recognized when it is sent again, from its `Idempotency-Key` if any.

    Equal groups within one POST are different groups: a repeat repeats the whole POST.
    """
    if header:
        yield from (_digest(f"key {position} {header}".encode()) for position in range(len(bodies)))
        return
    seen: Counter[str] = Counter()
    for body in bodies:
        digest = _digest(body.json)
        yield f"{digest} {seen[digest]}"
        seen[digest] += 1


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def count_rollouts(body: JsonBody) -> int:
    """How many rollouts a refused group counts as: the rows of `tokens`, or 0 if there are none."""
    try:
        group = from_json(body.json)
    except ValueError:
        return 0
    tokens = group.get("tokens") if isinstance(group, dict) else None
    return len(tokens) if isinstance(tokens, list) else 0


MAX_STEP_DIGITS = 9
MAX_NUMBER = 2.0**53


def number(request: Request, name: str, default: float) -> float:
    """Raises ApiRefusal if it is not a number, or negative."""
    text = request.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < MAX_NUMBER:
        raise ApiRefusal(422, name, f"{name} is {text!r}; it must be a number, at least 0 and below 2**53")
    return value


def step_of(request: Request) -> int | None:
    """None for a request without a step. Raises ApiRefusal if it is not a step."""
    text = request.query_params.get("step")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_STEP_DIGITS):
        raise ApiRefusal(422, "step", f"step is {text!r}; it must be an integer, at least 0")
    return int(text)
