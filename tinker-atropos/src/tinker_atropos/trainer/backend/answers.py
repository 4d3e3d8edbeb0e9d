"""What the backend answers to the tinker SDK, heard where all of the SDK's HTTP goes through.

The SDK retries for minutes or hours and says nothing, and gives up where a backend only asks for time: so a request
that is turned away for want of room is sent again from here, with growing pauses, and the SDK sees the final answer.
"""

import asyncio
import contextlib
import contextvars
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
from tinker_atropos.errors import without_key
from tinker_atropos.running_time import running_seconds
from tinker_atropos.trainer.standstill import Standstill

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
LONGEST_AT_A_STOP_SECONDS: Final = 1.0
"""The grace period is short, and what waits is a save."""

LONGEST_ASKED_SECONDS: Final = 300.0
"""Of a Retry-After: whatever it asks for, there may be room sooner."""

BACKOFF_SECONDS: Final = 5.0
"""Longest time for which the SDK itself holds samples back after HTTP 429."""

PATIENCE_SECONDS: Final = 5.0
"""A pause that is shorter is not told: a moment's HTTP 429 is how a backend steers its load."""

FORGOTTEN_SECONDS: Final = 120.0
"""A pause of which nothing was heard for so long is one of a request that is no longer asked."""

MOST_SHOWN: Final = 300

Asked = Literal["sampling", "training", "housekeeping"]
"""What an answer is about; whatever is not a sample is `training`, unless the caller says that no step needs it."""

SAMPLING: Final[Asked] = "sampling"
TRAINING: Final[Asked] = "training"
HOUSEKEEPING: Final[Asked] = "housekeeping"

ASKED: Final[contextvars.ContextVar[Asked]] = contextvars.ContextVar("asked", default=TRAINING)
"""Set by the caller: from there it reaches the SDK's own thread."""

Heard = tuple[Asked, object]
"""What was asked, and whether it was the `request` or its `result`, or which call as a whole."""


class Patience(NamedTuple):
    """How long a call may take, in seconds: without any answer, and while the backend says that it has to wait.
    `asked` is what the call is about.
    """

    silence: float
    pause: float = 86_400.0
    asked: Asked = TRAINING

    @classmethod
    def of(cls, settings: TrainerSettings) -> "Patience":
        return cls(settings.backend_deadline_seconds, settings.backend_pause_seconds)


HOUSEKEEPING_PATIENCE: Final = Patience(10.0, pause=3.0, asked=HOUSEKEEPING)
"""Whatever was not tidied is tidied after the next save."""


class AnswerMeaning(NamedTuple):
    """Of an answer: it is one of the API's, or asks for patience (`cause`), or is an error that may pass (`said`),
    or it says that a result is not there yet (`at_work`).
    """

    cause: PauseCause | None = None
    said: str = ""
    at_work: bool = False


ANSWER: Final = AnswerMeaning()

QUEUE_STATES: Final = {"paused_capacity": "it is short on capacity", "paused_rate_limit": "its rate limit is reached"}

_HELD: Final = r"(?:adapter|lora|slot|session|model|client|run|job|request|worker|replica|sampler|gpu)"
_LIMITED: Final = re.compile(
    r"capacity|quota|\bno (?:free|idle)\b"
    rf"|(?=.*(?<![a-z])(?:{_HELD}s\b|{_HELD} (?:limit|slot)|concurrent)).*"
    r"\b(?:limits?|maximum|at most|more than|only \d+|too many|exceed\w*|reached|no\b[^,;:.]* available)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Of what a backend holds for somebody, counted, there is a limit."""

_BUSY: Final = re.compile(
    r"overloaded|exhausted"
    r"|\b(?:is|are) (?:\w+ )?(?:full|busy)\b|\ball\b[^,;:.]* (?:full|busy|occupied|in use|used|taken)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Of what everyone shares there is too little: that also ends work that was begun."""

_ASIDE: Final = re.compile(r"\([^)]*\)| for .*", re.DOTALL)
_OF_THE_REQUEST: Final = re.compile(
    r"(?:^|[^a-z])(?:rank|length|tokens?|context|prompt|batch|size|bytes|dimension|sequences?|seq|top_k)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""What a request asks for is too much: no waiting helps."""

MAY_BE_FULL: Final = (400, 403, 409, 422, 500, 503, 507, 529)


def is_full(said: str, *, trains: bool = False) -> bool:
    """Whether a refusal says that there is no room now, rather than that the request is wrong. `trains`: it is the
    result of a request that must not be done twice, so only a limit tells that it was not begun.
    """
    said = _ASIDE.sub("", said)
    full = _LIMITED.search(said) or (not trains and _BUSY.search(said))
    return bool(full) and _OF_THE_REQUEST.search(said) is None


def meaning_of(response: httpx.Response) -> AnswerMeaning:
    """Of one that was read, unless its content is neither JSON nor HTML. The API speaks JSON: anything else comes from
    a gateway, whatever its status, and is not quoted.
    """
    status, kind = response.status_code, response.headers.get("content-type", "").lower()
    if status < 300 and not ("html" in kind or "json" in kind):
        return ANSWER
    content = response.content
    told = _read(content) if "json" in kind else None
    if isinstance(told, dict) and told.get("type") == "try_again" and (status < 300 or status == 408):
        state = str(told.get("queue_state") or "active")
        reason = str(told.get("queue_state_reason") or QUEUE_STATES.get(state, state))
        return AnswerMeaning(at_work=True) if state == "active" else AnswerMeaning("BackendPaused", _short(reason))
    if status < 300:
        return AnswerMeaning(said=f"HTTP {status} with an HTML page: is it a Tinker API?") if "html" in kind else ANSWER
    words = _short(_words(told, kind, content))
    said = f"HTTP {status}: {words}" if words and (told is not None or "html" in kind) else f"HTTP {status}"
    if status in MAY_BE_FULL and is_full(words):
        return AnswerMeaning("BackendFull", said)
    if status == 429 or (status in (503, 529) and "retry-after" in response.headers):
        return AnswerMeaning("BackendPaused", said)
    from_api = told is not None or (status == 400 and not content)  # the SDK knows an empty 400 from Cloudflare
    return ANSWER if from_api and 400 <= status < 500 and status != 408 else AnswerMeaning(said=said)


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
    """`since`, and `expected`, when it is asked again, are by the clock."""

    cause: PauseCause
    reason: str
    since: float
    expected: float

    @property
    def what(self) -> str:
        return "the backend is full" if self.cause == "BackendFull" else "paused by the backend"


@dataclass(slots=True)
class BackendAnswers:
    """What was heard last, by what was asked, and by whether it was the request, its result, or a call as a whole: the
    request may be taken while its result has to wait, and a result may be that there was no room.

    `stopping`: the run is being stopped, and no request of a step is held any longer. From the first one that is
    `withdrawn` on, so are all others of a step: none may be trained without what came before it. `untaken` counts those
    that the backend never took.
    """

    standstill: Standstill = field(default_factory=Standstill)
    clock: Callable[[], float] = running_seconds
    stopping: bool = False
    withdrawn: bool = False
    untaken: int = 0
    _pauses: dict[Heard, Paused] = field(default_factory=dict)
    _troubles: dict[Heard, str] = field(default_factory=dict)
    _alive_until: dict[Asked, float] = field(default_factory=dict)

    def hear(self, heard: Heard, meaning: AnswerMeaning, again_in: float = 0.0) -> None:
        """`again_in`: what asks for patience is asked again after so many seconds."""
        if meaning.said and meaning.cause is None:
            self._troubles[heard] = meaning.said
            return
        until = now = self.clock()
        if meaning.cause is None:
            self._pauses.pop(heard, None)
        else:
            until, before = now + again_in, self._pauses.get(heard)
            since = before.since if before else now
            self._pauses[heard] = Paused(meaning.cause, meaning.said, since, until)
        self._troubles.pop(heard, None)
        self._alive_until[heard[0]] = max(until, self.alive_until(heard[0]))

    def hear_nothing(self, heard: Heard) -> None:
        """No answer at all: what it said before is not why."""
        self._troubles.pop(heard, None)

    def over(self, heard: Heard) -> None:
        """What was paused is answered, or given up."""
        self._pauses.pop(heard, None)

    def alive_until(self, asked: Asked) -> float:
        """The last sign of life; while it is about to be asked again, silence is ours."""
        return self._alive_until.get(asked, 0.0)

    def paused(self, asked: Asked) -> Paused | None:
        """The pause that lasts longest."""
        pauses = (each for (about, _), each in list(self._pauses.items()) if about == asked)
        return min(pauses, key=lambda each: each.since, default=None)

    def trouble(self, asked: Asked | None = None) -> str | None:
        """What it answers instead of an answer: `HTTP 500: …`."""
        return next((said for (about, _), said in list(self._troubles.items()) if asked in (None, about)), None)

    def look(self) -> None:
        """Tell what stands still now. Nobody hears it when a request that was paused is given up."""
        now = self.clock()
        for heard, each in list(self._pauses.items()):
            if now - each.expected > FORGOTTEN_SECONDS:
                self.over(heard)
        longest = filter(None, map(self.paused, (TRAINING, SAMPLING)))
        told = {each.cause: each for each in longest if now - each.since >= PATIENCE_SECONDS}
        for cause, paused in told.items():
            self.standstill.begin(cause, paused.reason, now - paused.since)
        causes: Iterable[PauseCause] = ("BackendPaused", "BackendFull")
        for cause in causes:  # only then: one pause that has several causes is counted once
            if cause not in told:
                self.standstill.end(cause)


HEARD: Final = BackendAnswers()
"""One for the process, like the SDK's own connections."""

_UNASKED: Final = ("/session_heartbeat", "/telemetry", "/client/dynamic_config", "/cancel_future", "/finish")
"""What the SDK sends by itself: an answer to it says nothing of what was asked."""


_OF_A_STEP: Final = ("/forward", "/forward_backward", "/optim_step", "/save_weights_for_sampler")
WITHDRAWN: Final = 499
"""The status that the SDK sees of a request that is withdrawn: it does not try that again."""


def _heard(request: httpx.Request) -> Heard | None:
    """What an answer to it is about. None: nobody waits for it."""
    path = request.url.path
    if path.endswith(_UNASKED):
        return None
    of_sample = request.headers.get("X-Tinker-Request-Type") == "Sample"
    asked = SAMPLING if of_sample or path.endswith(("/asample", "/retrieve_futures")) else ASKED.get()
    return asked, "result" if path.endswith(("/retrieve_future", "/retrieve_futures")) else "request"


class HeardClient(_base_client.AsyncHttpxClientWrapper):
    """The SDK's HTTP client, which passes on what it hears. It follows no redirect: httpx would take the key along,
    which is in a header of Tinker's own.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "follow_redirects": False})

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        heard = _heard(request)
        if heard is None:
            return await self._answer(request, **options)
        pause, of_a_step = FIRST_PAUSE_SECONDS, request.url.path.endswith(_OF_A_STEP)
        while True:
            if of_a_step and HEARD.withdrawn:
                HEARD.over(heard)
                HEARD.untaken += 1
                return httpx.Response(WITHDRAWN, request=request)
            begun = time.monotonic()
            try:
                response = await self._answer(request, **options)
            except Exception:
                HEARD.hear_nothing(heard)
                raise
            meaning = meaning_of(response)
            of_result, status = heard[1] == "result", response.status_code
            turned_away = meaning.cause == "BackendPaused" and status >= 429
            # A result that has failed stays so, the SDK asks again for one that is not there yet, and it holds samples
            # back by itself, all of them together. It gives up after minutes, which is enough for housekeeping.
            left_to_sdk = not turned_away if of_result else status == 429 and request.url.path.endswith("/asample")
            left_to_sdk = left_to_sdk or heard[0] == HOUSEKEEPING
            if meaning.cause is None or left_to_sdk:
                break
            seconds = _retry_after(response) or pause
            HEARD.hear(heard, meaning, seconds)
            await response.aclose()
            await held(seconds, of_a_step=of_a_step)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        HEARD.hear(heard, meaning, BACKOFF_SECONDS)
        took = time.monotonic() - begun
        if of_result and meaning != ANSWER and took < FIRST_PAUSE_SECONDS:
            await asyncio.sleep(FIRST_PAUSE_SECONDS - took)  # the SDK asks again at once
        if meaning.said and meaning.cause is None:  # what the SDK tries again, also if a page says that a key is bad
            return httpx.Response(502, json={"detail": meaning.said}, request=request)
        return response

    async def _answer(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Read, unless it is a result in protobuf, and without the key that was sent."""
        response = await super().send(request, **options)
        if response.status_code < 300 and response.headers.get("content-type", "").endswith("protobuf"):
            return response
        await response.aread()
        key = request.headers.get("x-api-key", "")
        is_exchange = response.is_success and request.url.path.endswith("/auth/token")  # of the key for another one
        if is_exchange or not key or key.encode() not in response.content:
            return response
        framing = ("content-encoding", "content-length", "transfer-encoding")
        kept = {name: value for name, value in response.headers.items() if name not in framing}
        text = without_key(response.text, key)
        return httpx.Response(response.status_code, headers=kept, text=text, request=request)


async def held(seconds: float, *, of_a_step: bool) -> None:
    """Wait. A stop of the run, which another thread tells, shortens it, or ends it and withdraws the step."""
    begun = time.monotonic()
    while not (of_a_step and HEARD.stopping):
        longest = min(seconds, LONGEST_AT_A_STOP_SECONDS) if HEARD.stopping else seconds
        if (left := begun + longest - time.monotonic()) <= 0:
            return
        await asyncio.sleep(min(left, FIRST_PAUSE_SECONDS))
    HEARD.withdrawn = True


def _retry_after(response: httpx.Response) -> float | None:
    """In seconds, as far as it is followed; None if it says nothing that makes sense."""
    said, seconds = response.headers.get("retry-after", ""), 0.0
    with contextlib.suppress(ValueError):
        said = str(email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    with contextlib.suppress(ValueError):
        seconds = float(said)
    return min(seconds, LONGEST_ASKED_SECONDS) if seconds > 0 else None


_base_client.AsyncHttpxClientWrapper = HeardClient  # type: ignore[misc]  # the SDK takes no client of ours for a session
