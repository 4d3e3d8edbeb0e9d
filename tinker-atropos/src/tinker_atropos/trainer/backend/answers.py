"""What the backend answers to the tinker SDK, heard where all of the SDK's HTTP goes through.

The SDK retries for minutes or hours and says nothing, and gives up where a backend only asks for time: so a request
that is turned away for want of room is sent again from here, with growing pauses, and the SDK sees the final answer.
"""

import asyncio
import email.utils
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import httpx
import orjson
from tinker import _base_client

from rl_contract.trainer_messages import PauseCause
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.standstill import Standstill

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
LONGEST_ASKED_SECONDS: Final = 300.0
"""Of a Retry-After: whatever it asks for, there may be room sooner."""

BACKOFF_SECONDS: Final = 5.0
"""Longest time for which the SDK itself holds samples back after HTTP 429."""

PATIENCE_SECONDS: Final = 5.0
"""A pause that is shorter is not told: a moment's HTTP 429 is how a backend steers its load."""

FORGOTTEN_SECONDS: Final = 120.0
"""A pause of which nothing was heard for so long is one of a request that is no longer asked."""

MOST_SHOWN: Final = 300

Asked = Literal["sampling", "training"]
"""What an answer is about; whatever is not a sample is `training`."""

SAMPLING: Final[Asked] = "sampling"
TRAINING: Final[Asked] = "training"


class Patience(NamedTuple):
    """How long a call may take, in seconds: without any answer, and while the backend says that it has to wait."""

    silence: float
    pause: float = 86_400.0

    @classmethod
    def of(cls, settings: TrainerSettings) -> "Patience":
        return cls(settings.backend_deadline_seconds, settings.backend_pause_seconds)


class AnswerMeaning(NamedTuple):
    """Of an answer: it is one, or asks for patience (`cause`), or is an error that may pass (`said`)."""

    cause: PauseCause | None = None
    said: str = ""


ANSWER: Final = AnswerMeaning()

QUEUE_STATES: Final = {"paused_capacity": "it is short on capacity", "paused_rate_limit": "its rate limit is reached"}

_ROOM: Final = r"(?:adapter|lora|slot|session|model|client|run|job|request|worker|replica|sampler|gpu)s?"
_GONE: Final = r"(?:reached|exceeded|exhausted|full|used up)"
_FULL: Final = re.compile(
    rf"\b(?:max\w*|limit|quota|number)\b.*\b(?:{_ROOM}|capacity)\b.*\b{_GONE}"
    rf"|\b{_ROOM}\b.*\b(?:limit|quota|capacity)\b.*\b{_GONE}"
    rf"|\b(?:limit|quota|capacity|max_{_ROOM})\b(?: \(?\w+\)?)? {_GONE}"
    rf"|\btoo many\b.*\b{_ROOM}\b"
    rf"|\b(?:no|none|not enough|insufficient)\b.*\b(?:free|available|idle|left|remaining)\b.*\b{_ROOM}\b"
    rf"|\b(?:no|none|not enough|insufficient)\b.*\b{_ROOM}\b.*\b(?:free|available|idle|left|remaining)\b"
    r"|\b(?:no|at|over|out of|not enough|insufficient) (?:\w+ )?(?:capacity|room|gpus?|slots)\b"
    rf"|\ball\b.*\b{_ROOM}\b.*\b(?:in use|busy|occupied|taken|full)"
    r"|\b(?:server|backend|engine|cluster|service) is (?:\w+ )?(?:full|busy|overloaded)|\bresource.?exhausted\b",
    re.IGNORECASE | re.DOTALL,
)
_OF_THE_REQUEST: Final = re.compile(
    r"(?:^|[^a-z])(?:rank|length|tokens?|context|prompt|batch|size|bytes|dimension|sequences?|seq|top_k)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""What a request asks for is too much: no waiting helps."""


def is_full(said: str) -> bool:
    """Whether a refusal says that there is no room now, rather than that the request is wrong."""
    return _FULL.search(said) is not None and _OF_THE_REQUEST.search(said) is None


def meaning_of(response: httpx.Response) -> AnswerMeaning:
    """Of one that was read, unless its content is neither JSON nor HTML."""
    status, kind = response.status_code, response.headers.get("content-type", "")
    if status < 300 and not ("html" in kind or "json" in kind):
        return ANSWER
    content = response.content
    told = _read(content) if "json" in kind else None
    if isinstance(told, dict) and told.get("type") == "try_again" and (status < 300 or status == 408):
        state = str(told.get("queue_state") or "")
        reason = str(told.get("queue_state_reason") or QUEUE_STATES.get(state, state))
        return AnswerMeaning("BackendPaused", _short(reason)) if state.startswith("paused") else ANSWER
    if status < 300:
        return AnswerMeaning(said=f"HTTP {status} with an HTML page: is it a Tinker API?") if "html" in kind else ANSWER
    said = f"HTTP {status}: {_short(_words(told, kind, content))}".removesuffix(": ")
    if status == 429:
        return AnswerMeaning("BackendPaused", said)
    if status in (400, 403, 409, 503) and is_full(said):
        return AnswerMeaning("BackendFull", said)
    return AnswerMeaning(said=said) if status >= 500 or status == 408 or status < 400 else ANSWER


def _words(told: Any, kind: str, content: bytes) -> str:
    """The sentence of an answer, wherever servers put it."""
    if "html" in kind:
        return "an HTML page"
    while isinstance(told, dict):
        told = next((told[name] for name in ("detail", "error", "message") if told.get(name)), "")
    return str(told) if told is not None else content[:MOST_SHOWN].decode(errors="replace")


def _short(said: str) -> str:
    return " ".join(said.split())[:MOST_SHOWN]


def _read(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


class Paused(NamedTuple):
    """`since` and `heard`, its last answer, are by the clock."""

    cause: PauseCause
    reason: str
    since: float
    heard: float


@dataclass(slots=True)
class Lane:
    """Answers of one sort. `renewed` counts those that say that the backend is there and knows of the request;
    `trouble` is the last one if it did not, and `asks_again_at` when it is asked again.
    """

    clock: Callable[[], float]
    renewed: int = 0
    paused: Paused | None = None
    trouble: str | None = None
    asks_again_at: float = 0.0

    def hear(self, meaning: AnswerMeaning, again_in: float = 0.0) -> None:
        now = self.clock()
        self.trouble = meaning.said or None if meaning.cause is None else None
        if meaning.cause:
            since = self.paused.since if self.paused and self.paused.cause == meaning.cause else now
            self.paused = Paused(meaning.cause, meaning.said, since, now)
            self.asks_again_at = now + again_in
        elif not meaning.said:
            self.paused = None
        self.renewed += self.trouble is None


@dataclass(slots=True)
class BackendAnswers:
    """Lanes by what was asked, and whether it was the request, its result, or the opening of something as a whole: the
    request may be taken while its result has to wait.
    """

    standstill: Standstill | None = None
    clock: Callable[[], float] = time.monotonic
    _lanes: dict[tuple[Asked, str], Lane] = field(default_factory=dict)

    def lane(self, asked: Asked, of: str) -> Lane:
        return self._lanes.setdefault((asked, of), Lane(self.clock))

    def of(self, asked: Asked) -> list[Lane]:
        return [lane for (about, _), lane in list(self._lanes.items()) if about == asked]

    def renewed(self, asked: Asked) -> tuple[int, bool]:
        """Changes with each sign of life; while it is about to be asked again, silence is ours."""
        lanes = self.of(asked)
        waits = any(lane.asks_again_at > self.clock() for lane in lanes)
        return sum(lane.renewed for lane in lanes), waits

    def paused(self, asked: Asked) -> Paused | None:
        """The pause that lasts longest."""
        return min((lane.paused for lane in self.of(asked) if lane.paused), key=lambda each: each.since, default=None)

    def trouble(self, asked: Asked | None = None) -> str | None:
        """What it answers instead of an answer: `HTTP 500: …`."""
        lanes = list(self._lanes.values()) if asked is None else self.of(asked)
        return next((lane.trouble for lane in lanes if lane.trouble), None)

    @property
    def seconds_paused(self) -> float:
        """How long training stood still so far."""
        return self.standstill.seconds if self.standstill else 0.0

    def look(self) -> None:
        """Tell what stands still now. Nobody hears it when a request that was paused is given up."""
        now = self.clock()
        for lane in list(self._lanes.values()):
            if lane.paused and now - max(lane.paused.heard, lane.asks_again_at) > FORGOTTEN_SECONDS:
                lane.paused = None
        if self.standstill is None:
            return
        paused = [each for asked in (TRAINING, SAMPLING) if (each := self.paused(asked))]
        told = {each.cause: each for each in paused if now - each.since >= PATIENCE_SECONDS}
        causes: Iterable[PauseCause] = ("BackendPaused", "BackendFull")
        for cause in causes:
            if each := told.get(cause):
                self.standstill.begin(cause, each.reason, now - each.since)
            else:
                self.standstill.end(cause)


HEARD: Final = BackendAnswers()
"""One for the process, like the SDK's own connections."""

_UNASKED: Final = ("/session_heartbeat", "/telemetry", "/client/dynamic_config", "/cancel_future", "/finish")
"""What the SDK sends by itself: an answer to it says nothing of what was asked."""


def _lane_of(request: httpx.Request) -> tuple[Lane, bool] | None:
    """The lane, and whether it is that of results. None: nobody waits for it."""
    path = request.url.path
    if path.endswith(_UNASKED):
        return None
    results = path.endswith(("/retrieve_future", "/retrieve_futures"))
    of_sample = request.headers.get("X-Tinker-Request-Type") == "Sample"
    asked = SAMPLING if of_sample or path.endswith(("/asample", "/retrieve_futures")) else TRAINING
    return HEARD.lane(asked, "result" if results else "request"), results


class HeardClient(_base_client.AsyncHttpxClientWrapper):
    """The SDK's HTTP client, which passes on what it hears. It follows no redirect: httpx would take the key along,
    which is in a header of Tinker's own.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "follow_redirects": False})

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        found = _lane_of(request)
        if found is None:
            return await super().send(request, **options)
        lane, results = found
        pause = FIRST_PAUSE_SECONDS
        while True:
            begun = time.monotonic()
            try:
                response = await super().send(request, **options)
            except Exception:
                lane.trouble = None  # no answer at all: what it said before is not why
                raise
            if response.status_code >= 300 or not response.headers.get("content-type", "").endswith("protobuf"):
                await response.aread()
            meaning = meaning_of(response)
            seconds = _retry_after(response) or pause
            if not _is_held(request, meaning, results=results):
                lane.hear(meaning, BACKOFF_SECONDS)
                return await _passed_on(response, meaning, results=results, took=time.monotonic() - begun)
            lane.hear(meaning, seconds)
            await response.aclose()
            await asyncio.sleep(seconds)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _is_held(request: httpx.Request, meaning: AnswerMeaning, *, results: bool) -> bool:
    """Whether it is sent again from here. A result that has failed stays so, the SDK asks again for one that is not
    there yet, and it holds samples back by itself, all of them together.
    """
    if meaning.cause is None or (request.url.path.endswith("/asample") and meaning.said.startswith("HTTP 429")):
        return False
    return not results or meaning.said.startswith("HTTP 429")


async def _passed_on(response: httpx.Response, meaning: AnswerMeaning, *, results: bool, took: float) -> httpx.Response:
    """The SDK asks again for a result at once: not more than twice a second. It cannot read a page, and gives up."""
    if results and meaning is not ANSWER and took < FIRST_PAUSE_SECONDS:
        await asyncio.sleep(FIRST_PAUSE_SECONDS - took)
    if response.status_code < 300 and meaning.said and meaning.cause is None:
        return httpx.Response(502, text=meaning.said, request=response.request)
    return response


def _retry_after(response: httpx.Response) -> float | None:
    """In seconds, as far as it is followed; None if it says nothing that makes sense."""
    said = response.headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        moment = email.utils.parsedate_tz(said)
        seconds = email.utils.mktime_tz(moment) - time.time() if moment else 0.0
    return min(seconds, LONGEST_ASKED_SECONDS) if seconds > 0 else None


_base_client.AsyncHttpxClientWrapper = HeardClient  # type: ignore[misc]  # the SDK takes no client of ours for a session
