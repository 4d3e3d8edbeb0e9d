"""Polling a server that may be away or hostile: exponential pauses, one log line per outage, bounded responses."""

import logging
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
import orjson

from rl_operator.backoff import backoff
from rl_operator.metrics.wandb_query import WandbRefusedError

log = logging.getLogger(__name__)

LONGEST_SECONDS: Final = 900.0
LONGEST_ASKED_FOR_SECONDS: Final = 3600.0
"""Whatever Retry-After says: metrics are worth a request an hour."""

KEY_REFUSED: Final = (401, 403)
BUSY: Final = 429
GONE_WRONG: Final = 500


class OutageError(Exception):
    """The server did not respond. `outcome` is the label of the metric; `pause_seconds` is what it asked for."""

    def __init__(self, outcome: str, why: str, pause_seconds: float | None = None) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.pause_seconds = pause_seconds


class Outage:
    """A server's outage, or none. `over_at` is when it may be polled again, by time.monotonic()."""

    def __init__(self, base_url: str, first_seconds: float) -> None:
        self._base_url = base_url
        self._first = first_seconds
        self._failures = 0
        self.over_at = float("-inf")

    def failed(self, error: OutageError, now: float) -> None:
        pause = backoff(self._failures + 1, self._first, max(LONGEST_SECONDS, self._first))
        if error.pause_seconds is not None:
            pause = max(self._first, min(error.pause_seconds, LONGEST_ASKED_FOR_SECONDS))
        if self._failures == 0:
            log.warning("W&B at %s returns no metrics (%.300s): it is polled less often", self._base_url, error)
        self._failures += 1
        self.over_at = now + pause

    def answered(self) -> None:
        if self._failures:
            log.info("W&B at %s answers again", self._base_url)
        self._failures = 0


def check_status(response: aiohttp.ClientResponse) -> None:
    """Raises OutageError for an error of the server or the key, RefusedError for one of the request."""
    code = response.status
    if code == BUSY:
        raise OutageError("limited", "HTTP 429: too many requests", retry_after(response.headers.get("Retry-After")))
    if code in KEY_REFUSED:
        raise OutageError("key refused", f"HTTP {code}: it refuses the operator's WANDB_API_KEY", LONGEST_SECONDS)
    if code >= GONE_WRONG:
        raise OutageError("silent", f"HTTP {code}", retry_after(response.headers.get("Retry-After")))
    if code != 200:
        raise WandbRefusedError(f"HTTP {code}")


class UnreadableAnswerError(Exception):
    """The response is not JSON, or is longer than anything that we asked for."""


async def read_json(response: aiohttp.ClientResponse, most_bytes: int) -> object:
    """The body as JSON; raises UnreadableAnswerError, and never holds more than `most_bytes` (and one chunk)."""
    held = bytearray()
    async for piece in response.content.iter_any():
        held += piece
        if len(held) > most_bytes:
            raise UnreadableAnswerError(f"more than {most_bytes} bytes")
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswerError(f"no JSON: {error}") from error


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds of a Retry-After header (RFC 9110, 10.2.3): a number of seconds, or a date."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
