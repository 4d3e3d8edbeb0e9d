"""Bodies that are too large, broken, or mislabeled. A real server reads them."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from tinker_atropos.trajectory_api.messages.bodies import ApiRefusal, plain, read_body, split_list, strict


def request(*chunks: bytes, gzipped: bool = False) -> Request:
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    headers = [(b"content-encoding", b"gzip")] if gzipped else []

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


@pytest.mark.parametrize(
    ("sent", "gzipped", "status", "message"),
    [
        (b"x" * 101, False, 413, "the body has 101 bytes; the limit is 100: send less at once"),
        (gzip.compress(bytes(10_000), mtime=0), True, 413, "more than 100 bytes decompressed"),
        (b"plain", True, 400, "not gzip, as content-encoding says"),
        (gzip.compress(b"x" * 50, mtime=0)[:-4], True, 400, "ends too early"),
        (b"", True, 400, "ends too early"),
    ],
)
async def test_refused_bodies(sent, gzipped, status, message) -> None:
    with pytest.raises(ApiRefusal, match=message) as caught:
        await read_body(request(sent, gzipped=gzipped), limit=100)
    assert caught.value.status_code == status


async def test_a_body_in_chunks() -> None:
    sent = gzip.compress(b"[1, 2]")
    body = await read_body(request(sent[:5], sent[5:], gzipped=True))
    assert (body.sent, body.json) == (sent, b"[1, 2]")


async def test_a_body_of_exactly_the_limit() -> None:
    assert (await read_body(request(gzip.compress(b"x" * 100), gzipped=True), limit=100)).json == b"x" * 100


@given(st.text())
def test_strict_json_keeps_strings(text: str) -> None:
    body = plain(b'{"a": "NaN ' + text.encode("unicode_escape").replace(b"\\", b"").replace(b'"', b"") + b'"}')
    assert b"NaN" in strict(body).json


@pytest.mark.parametrize(("json", "expected"), [(b"[NaN, 1, -Infinity]", b"[null,1,null]"), (b"[1.0, 2]", b"[1.0, 2]")])
def test_strict_json(json, expected) -> None:
    assert strict(plain(json)).json == expected


def test_the_elements_of_a_list_keep_nonstandard_numbers() -> None:
    assert [body.json for body in split_list(plain(b'[{"a": NaN}, [1.5]]'))] == [b'{"a":NaN}', b"[1.5]"]


@pytest.mark.parametrize(("body", "status"), [(b"{}", 422), (b"[", 400), (b"", 400)])
def test_bodies_that_are_not_lists(body, status) -> None:
    with pytest.raises(ApiRefusal) as caught:
        split_list(plain(body))
    assert caught.value.status_code == status
