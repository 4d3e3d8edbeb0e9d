"""Results are kept until they are fetched, and a while after; never forever."""

import time
from concurrent.futures import Future
from typing import Any

import pytest

from tinker_service.sdk.futures import FETCHED_SECONDS, UNFETCHED_SECONDS, Futures
from tinker_service.service_errors import RequestError


def finished(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


async def test_a_fetched_result_can_be_fetched_again_for_a_while() -> None:
    futures = Futures()
    request_id = futures.add(("model", 1), finished("result"))
    for _ in range(2):
        future = await futures.wait(request_id, 1)
        assert future is not None
        assert future.result() == "result"
    futures.forget_expired(time.monotonic() + FETCHED_SECONDS / 2)
    assert futures.known(("model", 1)) == request_id
    futures.forget_expired(time.monotonic() + FETCHED_SECONDS)
    assert futures.known(("model", 1)) is None
    with pytest.raises(RequestError, match="is not known") as raised:
        await futures.wait(request_id, 1)
    assert raised.value.status == 410


async def test_an_unfetched_result_is_dropped_later_and_a_running_request_stays() -> None:
    futures = Futures()
    done, running = futures.add(None, finished(1)), futures.add(None, Future())
    futures.forget_expired(time.monotonic() + FETCHED_SECONDS)
    assert await futures.wait(done, 1) is not None
    futures.forget_expired(time.monotonic() + UNFETCHED_SECONDS)
    assert await futures.wait(running, 0.01) is None


async def test_waiting_ends_on_time_and_leaves_the_request_running() -> None:
    futures = Futures()
    future: Future[Any] = Future()
    request_id = futures.add(None, future)
    assert await futures.wait(request_id, 0.01) is None
    future.set_result("late")
    assert await futures.wait(request_id, 1) is future


async def test_cancel_affects_only_a_waiting_request() -> None:
    futures = Futures()
    waiting, running = Future(), Future()
    running.set_running_or_notify_cancel()
    for future in (waiting, running):
        futures.cancel(futures.add(None, future))
    futures.cancel("unknown")
    assert waiting.cancelled()
    assert not running.cancelled()
