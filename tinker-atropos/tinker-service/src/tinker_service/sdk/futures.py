"""Requests in progress and their results: kept until fetched, and for a while after (the answer may get lost)."""

import asyncio
import time
import uuid
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tinker_service.service_errors import RequestError

FETCHED_SECONDS = 60.0
UNFETCHED_SECONDS = 3_600.0

RequestKey = tuple[str, int]  # (model or sampler, seq_id): the SDK's retries carry the same


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class _Entry:
    future: Future[Any]
    key: RequestKey | None
    expires_at: float


class Futures:
    """The table of requests. Used on the event loop only."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._ids: dict[RequestKey, str] = {}

    def known(self, key: RequestKey | None) -> str | None:
        """The id under which a retried request is already running."""
        return None if key is None else self._ids.get(key)

    def owner(self, request_id: str) -> str | None:
        """The model or sampler that a request is for."""
        entry = self._entries.get(request_id)
        return entry.key[0] if entry and entry.key else None

    def add(self, key: RequestKey | None, future: Future[Any], request_id: str | None = None) -> str:
        """Keep a new request, under an id that the caller has chosen with `new_id` or a fresh one."""
        request_id = request_id or new_id()
        self._entries[request_id] = _Entry(future, key, time.monotonic() + UNFETCHED_SECONDS)
        if key is not None:
            self._ids[key] = request_id
        return request_id

    async def wait(self, request_id: str, seconds: float) -> Future[Any] | None:
        """The finished future; None if it takes longer. Raises RequestError (410) if it is no longer known."""
        entry = self._entries.get(request_id)
        if entry is None:
            raise RequestError(
                f"request {request_id} is not known: its result was fetched, has expired, or the service was restarted",
                status=410,
            )
        done, _ = await asyncio.wait([asyncio.wrap_future(entry.future)], timeout=seconds)
        if not done:
            return None
        entry.expires_at = time.monotonic() + FETCHED_SECONDS
        return entry.future

    def cancel(self, request_id: str) -> None:
        """Cancel a request that has not started or, if it is a sample request, that has."""
        entry = self._entries.get(request_id)
        if entry is not None:
            entry.future.cancel()

    def forget_expired(self, now: float) -> None:
        """Drop results that are no longer going to be fetched. `now` is from time.monotonic()."""
        for request_id, entry in list(self._entries.items()):
            if entry.expires_at <= now and entry.future.done():
                del self._entries[request_id]
                if entry.key is not None:
                    self._ids.pop(entry.key, None)
