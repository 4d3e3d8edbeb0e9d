"""Calls over real HTTP: deadlines, translated errors, credentials."""

import time
from pathlib import Path

import pytest
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi, connect, serving

from rl_operator.cluster.api_server.client import JSON_PATCH, METADATA_ONLY, ClusterClient, ExpiredError, failure
from rl_operator.log_lines import CUT, LONGEST_LINE
from rl_operator.operator_errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    RefusedError,
    TargetUnreachableError,
)

POD = "/api/v1/namespaces/ns/pods/p"
PODS = "/api/v1/pods"


def event(kind: str, version: int) -> dict[str, object]:
    return {"type": kind, "object": {"metadata": {"name": "p", "resourceVersion": str(version)}}}


async def test_every_call_carries_the_token(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", POD, Answer({"kind": "Pod"}))
    assert await client.get(POD) == {"kind": "Pod"}
    assert api.requests[0].headers["Authorization"] == "Bearer secret-token"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_the_callers_token(api: FakeApi, client: ClusterClient, code: int) -> None:
    """A tenant's pod that is asked through the API server may answer with one, and would get the token."""
    async with serving(FakeApi()) as elsewhere:
        elsewhere.answers("GET", "/steal", Answer({}))
        proxied = f"{POD}:8002/proxy/rollouts"
        api.answers("GET", proxied, Answer({}, code, headers={"Location": f"{elsewhere.url}/steal"}))
        with pytest.raises(OperatorError):
            await client.get(proxied)
        assert elsewhere.requests == []


async def test_kopf_gets_the_same_credentials_and_cannot_close_our_connections(
    api: FakeApi, client: ClusterClient
) -> None:
    api.answers("GET", POD, Answer({"kind": "Pod"}))
    async with client.kopf_session(print) as session, session.get(api.url + POD) as response:
        assert response.status == 200
    assert api.requests[0].headers["Authorization"] == "Bearer secret-token"
    await client.get(POD)


async def test_a_list_started_by_kopf_is_reported_once_it_is_answered(api: FakeApi, client: ClusterClient) -> None:
    told: list[int] = []
    api.answers("GET", PODS, Answer({"message": "starting"}, 503), Answer({"items": []}))
    api.answers("WATCH", PODS, Answer(lines=()))
    async with client.kopf_session(lambda: told.append(len(api.requests))) as session:
        for query in ("limit=100", "limit=100", "limit=100&continue=x", "watch=true&resourceVersion=5", ""):
            async with session.get(f"{api.url}{PODS}?{query}"):
                pass
    assert told == [2]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_pause_requested_by_the_api_server_is_honored(api: FakeApi, client: ClusterClient, code: int) -> None:
    busy = Answer({"message": "too many requests"}, code, headers={"Retry-After": "1"})
    api.answers("POST", PODS, busy, Answer({"kind": "Pod"}))
    before = time.monotonic()
    assert await client.create(PODS, {"a": 1}) == {"kind": "Pod"}
    assert time.monotonic() - before >= 1
    assert [request.body for request in api.requests] == [{"a": 1}] * 2


@pytest.mark.parametrize(
    ("code", "headers"),
    [(429, {}), (429, {"Retry-After": "600"}), (503, {"Retry-After": "Mon, 1 Jun 2026"}), (409, {"Retry-After": "0"})],
    ids=["no pause", "longer than a call may take", "a gateway's date", "no code that passes"],
)
async def test_an_unusable_pause_is_a_refusal(
    api: FakeApi, client: ClusterClient, code: int, headers: dict[str, str]
) -> None:
    api.answers("POST", PODS, Answer({"message": "not now"}, code, headers=headers))
    with pytest.raises(OperatorError, match=f"{code}: not now"):
        await client.create(PODS, {})
    assert len(api.requests) == 1


async def test_endless_pauses_end_at_the_calls_deadline(api: FakeApi, tmp_path: Path) -> None:
    api.answers("GET", POD, Answer({"message": "busy"}, 429, headers={"Retry-After": "1"}))
    async with await connect(api, tmp_path, request_seconds=1.5) as client:
        with pytest.raises(TargetUnreachableError, match="429: busy"):
            await client.get(POD)
    assert len(api.requests) == 2


async def test_the_clock_is_the_api_servers(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", POD, Answer({}, headers={"Date": "Mon, 01 Jun 2037 12:00:00 GMT"}))
    await client.get(POD)
    assert client.clock.now().isoformat().startswith("2037-06-01T12:00")


async def test_refusals_are_translated(api: FakeApi, client: ClusterClient) -> None:
    with pytest.raises(GoneError, match=f"GET {POD}: the API server answered 404"):
        await client.get(POD)
    api.answers("POST", PODS, Answer({"kind": "Status", "message": 'pods "p" already exists'}, 409))
    with pytest.raises(ConflictError, match="already exists"):
        await client.create(PODS, {"kind": "Pod"})


async def test_a_gateway_that_answers_without_a_status_object(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", POD, Answer("bad gateway", 502))
    with pytest.raises(TargetUnreachableError, match=r"502: .*bad gateway"):
        await client.get(POD)


async def test_a_missing_answer(api: FakeApi, tmp_path: Path) -> None:
    api.answers("GET", POD, Answer(hangs=True))
    async with await connect(api, tmp_path, request_seconds=0.2) as client:
        with pytest.raises(TargetUnreachableError, match=f"the API server {api.url} does not answer"):
            await client.get(POD)


async def test_a_collection_is_read_chunk_by_chunk(api: FakeApi, client: ClusterClient) -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [{"a": 1}, {"a": 2}]}
    last = {"metadata": {"resourceVersion": "5"}, "items": None}
    taken: list[dict[str, int]] = []
    api.answers("GET", PODS, Answer(first), Answer(last))
    assert await client.each(PODS, {"labelSelector": "a=b"}, taken.append) == "5"
    assert taken == [{"a": 1}, {"a": 2}]
    assert [r.query.get("continue") for r in api.requests] == [None, "more"]
    assert {r.query["labelSelector"] for r in api.requests} == {"a=b"}


async def test_metadata_is_requested_by_the_name_each_kind_of_call_uses(api: FakeApi, client: ClusterClient) -> None:
    """A watch with the parameters of a list is a silent stream without events."""
    api.answers("GET", PODS, Answer({"metadata": {"resourceVersion": "5"}, "items": None}))
    api.answers("WATCH", PODS, Answer(lines=()))
    await client.each(PODS, {}, print, METADATA_ONLY)
    assert [event async for event in client.watch(PODS, {}, METADATA_ONLY)] == []
    listed, watched = (request.headers["Accept"] for request in api.requests)
    assert listed.startswith("application/json;as=PartialObjectMetadataList;")
    assert watched.startswith("application/json;as=PartialObjectMetadata;")


async def test_a_text_is_read_whole_however_long_its_lines_are(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", f"{POD}/log", Answer(text="x" * 300_000))
    assert len(await client.text(f"{POD}/log", {"limitBytes": 7})) == 300_000
    assert api.requests[0].query == {"limitBytes": "7"}
    with pytest.raises(GoneError):
        await client.text(POD, {})


async def test_what_a_pod_answers_is_read_up_to_a_size(api: FakeApi, client: ClusterClient) -> None:
    path = f"{POD}:8002/proxy/rollouts"
    api.answers("GET", path, Answer(text="x" * 300_000))
    assert await client.content(path, 300_000) == b"x" * 300_000
    with pytest.raises(RefusedError, match="the answer has more than 0 MiB"):
        await client.content(path, 299_999)
    with pytest.raises(GoneError):
        await client.content(POD, 1)
    await client.content(path, 300_000, headers={"X-RL-Ops-Token": "t0ken"})
    assert [request.headers.get("X-RL-Ops-Token") for request in api.requests][-1] == "t0ken"


async def test_what_is_already_known_is_not_asked_for_again(api: FakeApi, client: ClusterClient) -> None:
    path = f"{POD}:8002/proxy/rollouts/metrics-1.jsonl.zst"
    part = Answer(text="89", status=206, headers={"Content-Range": "bytes 8-9/10"})
    whole, ended = Answer(text="0123456789"), Answer(text="no such bytes", status=416)
    api.answers("GET", path, whole, part, whole, ended)
    assert await client.content(path, 10) == b"0123456789"
    assert await client.content(path, 10, 8) == b"89"
    assert await client.content(path, 10, 8) == b"89", "a server that knows no ranges sends all"
    with pytest.raises(GoneError, match="no such bytes"):
        await client.content(path, 10, 10)
    assert [request.headers.get("Range") for request in api.requests] == [None, "bytes=8-", "bytes=8-", "bytes=10-"]


async def test_a_line_is_cut_however_long_it_is(api: FakeApi, client: ClusterClient) -> None:
    """Longer than what aiohttp takes for a line."""
    api.answers("GET", f"{POD}/log", Answer(text="x" * 5_000_000 + "\nnext\nlast"))
    long, *others = [line async for line in client.lines(f"{POD}/log", {})]
    assert long == b"x" * LONGEST_LINE + CUT + b"\n"
    assert others == [b"next\n", b"last"]


async def test_a_stalled_stream_of_lines_ends_at_the_calls_deadline(api: FakeApi, tmp_path: Path) -> None:
    api.answers("GET", f"{POD}/log", Answer(lines=({"line": 1},), hangs=True))
    async with await connect(api, tmp_path, request_seconds=0.3) as client:
        lines = client.lines(f"{POD}/log", {"tailLines": 7})
        assert await anext(lines) == b'{"line": 1}\n'
        with pytest.raises(TargetUnreachableError, match="does not answer"):
            await anext(lines)


async def test_deletions_and_patches_identify_the_object(api: FakeApi, client: ClusterClient) -> None:
    api.answers("DELETE", POD, Answer({"kind": "Pod"}))
    api.answers("PATCH", POD, Answer({"kind": "Pod"}))
    await client.delete(POD, "uid-1")
    await client.patch(POD, [{"op": "test"}], JSON_PATCH)
    deletion, patch = api.requests
    assert deletion.body == {"preconditions": {"uid": "uid-1"}}
    assert patch.headers["Content-Type"] == JSON_PATCH


async def test_a_watch_gives_events_until_the_server_ends_it(api: FakeApi, client: ClusterClient) -> None:
    api.answers("WATCH", PODS, Answer(lines=(event("ADDED", 6), event("BOOKMARK", 9))))
    events = [e["type"] async for e in client.watch(PODS, {"resourceVersion": "5"})]
    assert events == ["ADDED", "BOOKMARK"]
    query = api.requests[0].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("5", "true")


async def test_an_expired_version_has_its_own_error(api: FakeApi, client: ClusterClient) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
    api.answers("WATCH", PODS, Answer(lines=(gone,)))
    with pytest.raises(ExpiredError, match="too old"):
        async for _ in client.watch(PODS, {"resourceVersion": "5"}):
            pass


async def test_nothing_listens(tmp_path: Path) -> None:
    async with await connect(FakeApi(url="http://127.0.0.1:1"), tmp_path) as client:
        with pytest.raises(TargetUnreachableError, match="GET /x: the API server http://127"):
            await client.get("/x")


BY_CODE = [
    (400, InvalidError),
    (403, ForbiddenError),
    (404, GoneError),
    (409, ConflictError),
    (410, ExpiredError),
    (416, GoneError),
    (422, InvalidError),
    (429, TargetUnreachableError),
    (500, TargetUnreachableError),
    (503, TargetUnreachableError),
]


@pytest.mark.parametrize(("code", "kind"), BY_CODE)
def test_the_type_says_who_must_act(code: int, kind: type[OperatorError]) -> None:
    error = failure("POST /api/v1/pods", {"code": code, "message": "the reason"})
    assert type(error) is kind
    assert str(error) == f"POST /api/v1/pods: the API server answered {code}: the reason"


def test_credentials_that_are_refused_are_said_to_be_so() -> None:
    error = failure("GET /api", {"code": 401, "message": "Unauthorized"})
    assert type(error) is ForbiddenError
    assert str(error).endswith("401: Unauthorized: it does not know the token or certificate, or no longer does")
