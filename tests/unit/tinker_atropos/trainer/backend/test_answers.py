"""What a backend's answers mean, what is sent again, and how long a call waits for what."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
import tinker
from tinker import _base_client
from tinker._client import AsyncTinker
from tinker.lib._auth_token_provider import ApiKeyAuthProvider
from tinker.types import RequestErrorCategory

from tinker_atropos.errors import BackendError, ConfigError
from tinker_atropos.trainer.backend.answers import (
    ANSWER,
    ASKED,
    HEARD,
    HOUSEKEEPING,
    PATIENCE_SECONDS,
    SAMPLING,
    TRAINING,
    WITHDRAWN,
    AnswerMeaning,
    BackendAnswers,
    Heard,
    HeardClient,
    Patience,
    is_full,
    meaning_of,
)
from tinker_atropos.trainer.backend.sdk_calls import Request, answered, submitted
from tinker_atropos.trainer.standstill import Standstill

ADAPTERS = "Maximum number of LoRA adapters (6) reached"
LIMITED = (
    ADAPTERS,
    "max_loras reached",
    "adapter limit exceeded",
    "Too many active sessions for this key",
    "session quota exceeded for project default",
    "No free adapter slots",
    "no GPU workers available, try again later",
    "The maximum number of concurrent training runs (2) has been reached",
    "insufficient capacity to create a model",
    "at capacity",
    "Quota exceeded",
    "Number of LoRA adapters exceeds max_loras=4",
    "You have reached your limit of 3 concurrent training runs",
    "max_lora_adapters (8) exceeded",
    "At most 4 LoRA adapters can be loaded",
    "cannot create more than 4 models",
    "Maximum number of LoRA adapters (32) reached for rank 64",
    "Maximum number of LoRA adapters reached (max batch size 8)",
    "Maximum concurrent models (4) reached for this token",
    "Concurrent model limit of 5 reached",
    "You have hit your concurrent session limit",
    "too many concurrent requests, try again later",
    "no free worker for this model; please retry",
    "Server at maximum capacity",
    "Only 8 adapters allowed at the same time",
)
BUSY = (
    "all 4 adapter slots are in use",
    "Server is full",
    "RESOURCE_EXHAUSTED",
    "RESOURCE_EXHAUSTED: all replicas busy",
    "All adapter slots are used",
    "Overloaded",
    "worker lost during optim_step: retries exhausted",
    "CUDA out of memory: resource exhausted",
    "request timed out: worker is busy with optim_step",
    "gradient buffer is full",
)
WRONG = (
    "LoRA rank 64 exceeds the maximum of 32",
    "maximum LoRA rank (32) exceeded",
    "lora_rank is over the limit of 32 for this model",
    "max_tokens exceeds the limit of 4096",
    "the prompt is too long: the maximum context length of this model is exceeded",
    "unknown model 'Qwen/none'",
    "no such session",
    "the adapter has no optimizer state",
    "batch size limit reached",
    "learning_rate must be at most 1",
    "Validation error at model.base_model: field required",
    "model Qwen/x is not available for training",
    "model Qwen3-Max is unknown; available models: Qwen3-8B, Qwen3-32B",
    "There is no model Qwen/x; these models are available: Qwen3-8B",
    "Only models of the Qwen family are supported",
    "models with full fine-tuning are not supported",
    "rank 64 exceeds the maximum for models of this size",
    "maximum context length exceeded by 4 tokens",
    "request too large: the limit is 4 MB",
    "the checkpoint belongs to another session",
    "this API key has expired",
    "the name attempt-1 is already in use",
    "the optimizer is used by no adapter",
    "",
)


@pytest.mark.parametrize("said", LIMITED + BUSY)
def test_no_room_is_no_fault_of_the_request(said: str) -> None:
    assert is_full(said)


@pytest.mark.parametrize("said", LIMITED + BUSY)
def test_what_trains_is_not_asked_again_if_it_may_have_begun(said: str) -> None:
    assert is_full(said, trains=True) == (said in LIMITED)


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_request_stays_wrong(said: str) -> None:
    assert not is_full(said)


def paused(state: str, reason: str | None = None) -> dict[str, Any]:
    return {"type": "try_again", "queue_state": state, "queue_state_reason": reason}


AT_WORK = AnswerMeaning(at_work=True)
LOGIN = httpx.Response(200, html="<title>Log in</title>")

MEANINGS: dict[str, tuple[httpx.Response, AnswerMeaning]] = {
    "paused": (
        httpx.Response(408, json=paused("paused_capacity", "Tinker is\n short on capacity")),
        AnswerMeaning("BackendPaused", "Tinker is short on capacity"),
    ),
    "paused, by an older server": (
        httpx.Response(200, json=paused("paused_rate_limit")),
        AnswerMeaning("BackendPaused", "its rate limit is reached"),
    ),
    "paused, for a reason of its own": (
        httpx.Response(408, json=paused("maintenance")),
        AnswerMeaning("BackendPaused", "maintenance"),
    ),
    "at work": (httpx.Response(408, json=paused("active")), AT_WORK),
    "at work, and says no more": (httpx.Response(408, json={"type": "try_again"}), AT_WORK),
    "away for a while": (
        httpx.Response(503, html="<h1>Busy</h1>", headers={"retry-after": "60"}),
        AnswerMeaning("BackendPaused", "HTTP 503: an HTML page"),
    ),
    "overloaded for a while": (
        httpx.Response(529, headers={"retry-after": "60"}),
        AnswerMeaning("BackendPaused", "HTTP 529"),
    ),
    "overloaded": (
        httpx.Response(529, json={"error": {"message": "Overloaded"}}),
        AnswerMeaning("BackendFull", "HTTP 529: Overloaded"),
    ),
    "full, as a fault": (
        httpx.Response(500, json={"detail": ADAPTERS}),
        AnswerMeaning("BackendFull", f"HTTP 500: {ADAPTERS}"),
    ),
    "a gateway's own timeout": (
        httpx.Response(408, text="stream timeout"),
        AnswerMeaning(said="HTTP 408"),
    ),
    "too many requests": (
        httpx.Response(429, json={"detail": "slow down"}),
        AnswerMeaning("BackendPaused", "HTTP 429: slow down"),
    ),
    "too many requests, in no words": (httpx.Response(429), AnswerMeaning("BackendPaused", "HTTP 429")),
    "full": (
        httpx.Response(400, json={"detail": ADAPTERS}),
        AnswerMeaning("BackendFull", f"HTTP 400: {ADAPTERS}"),
    ),
    "full, in OpenAI's shape": (
        httpx.Response(503, json={"error": {"message": "no capacity", "code": 1}}),
        AnswerMeaning("BackendFull", "HTTP 503: no capacity"),
    ),
    "full, in plain text": (
        httpx.Response(409, text="too many sessions"),
        AnswerMeaning("BackendFull", "HTTP 409"),
    ),
    "a refusal": (httpx.Response(400, json={"detail": WRONG[0]}), ANSWER),
    "a key that is refused": (httpx.Response(401, json={"detail": "no such key"}), ANSWER),
    "a fault": (httpx.Response(500, json={"detail": "boom"}), AnswerMeaning(said="HTTP 500: boom")),
    "a fault, in no words": (httpx.Response(500), AnswerMeaning(said="HTTP 500")),
    "a gateway": (
        httpx.Response(502, html="<h1>Bad Gateway</h1>"),
        AnswerMeaning(said="HTTP 502: an HTML page"),
    ),
    "a way to somewhere else": (httpx.Response(302), AnswerMeaning(said="HTTP 302")),
    "a login page": (LOGIN, AnswerMeaning(said="HTTP 200 with an HTML page: is it a Tinker API?")),
    "JSON that is none": (
        httpx.Response(500, content=b"{", headers={"content-type": "application/json"}),
        AnswerMeaning(said="HTTP 500"),
    ),
    "a key that a gateway refuses": (
        httpx.Response(403, html="<h1>Forbidden</h1>"),
        AnswerMeaning(said="HTTP 403: an HTML page"),
    ),
    "a key that a gateway refuses, in plain text": (
        httpx.Response(401, text="x-api-key: tml-k"),
        AnswerMeaning(said="HTTP 401"),
    ),
    "a bill that a gateway sends": (httpx.Response(402), AnswerMeaning(said="HTTP 402")),
    "a path that a gateway does not know": (httpx.Response(404, text="not found"), AnswerMeaning(said="HTTP 404")),
    "a connection that Cloudflare wants new": (httpx.Response(400), ANSWER),
    "a result": (httpx.Response(200, json={"request_id": "1"}), ANSWER),
    "a list": (httpx.Response(200, json=[1]), ANSWER),
}  # fmt: skip


@pytest.mark.parametrize(("response", "meaning"), MEANINGS.values(), ids=MEANINGS)
def test_meaning(response: httpx.Response, meaning: AnswerMeaning) -> None:
    assert meaning_of(response) == meaning


RESULT: Heard = (TRAINING, "result")
SHORT = AnswerMeaning("BackendPaused", "short on capacity")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def heard_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of what was heard, and nothing was heard yet."""
    clock = Clock()
    for name in ("_pauses", "_troubles", "_alive_until"):
        monkeypatch.setattr(HEARD, name, {})
    for name in ("stopping", "withdrawn"):
        monkeypatch.setattr(HEARD, name, False)
    monkeypatch.setattr(HEARD, "clock", clock)
    monkeypatch.setattr(HEARD, "standstill", Standstill(clock=clock))
    return clock


RETRY_AT_ONCE = {"retry-after": "0.01"}


async def sent(path: str, *answers: httpx.Response, **headers: str) -> tuple[httpx.Response, int]:
    """What the SDK gets of a backend that gives these answers one after the other, and how often that was asked."""
    left = list(answers)

    def next_one(_request: httpx.Request) -> httpx.Response:
        return left.pop(0) if len(left) > 1 else left[0]

    async with HeardClient(base_url="http://backend", transport=httpx.MockTransport(next_one)) as client:
        response = await client.send(client.build_request("POST", path, json={}, headers=headers))
    return response, len(answers) - len(left) + 1


@pytest.mark.parametrize(
    "turned_away",
    [
        httpx.Response(429, headers=RETRY_AT_ONCE),
        httpx.Response(400, json={"detail": ADAPTERS}, headers=RETRY_AT_ONCE),
        httpx.Response(503, text="at capacity", headers=RETRY_AT_ONCE),
        httpx.Response(408, json=paused("paused_capacity"), headers=RETRY_AT_ONCE),
        httpx.Response(429, headers={"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}),
        httpx.Response(429, headers={"retry-after": "soon"}),
        httpx.Response(429, headers={"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}),
        httpx.Response(503, html="<h1>Busy</h1>", headers=RETRY_AT_ONCE),
        httpx.Response(429, headers={"retry-after": "-3"}),
    ],
)
async def test_a_request_that_is_turned_away_is_sent_again(turned_away: httpx.Response) -> None:
    response, asked = await sent("/api/v1/create_model", turned_away, turned_away, httpx.Response(200, json={}))
    assert (response.status_code, asked) == (200, 3)
    assert HEARD.paused(TRAINING) is None


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/api/v1/create_model", httpx.Response(400, json={"detail": WRONG[0]})),
        ("/api/v1/create_model", httpx.Response(401, json={"detail": "no such key"})),
        ("/api/v1/create_model", httpx.Response(400)),
        ("/api/v1/retrieve_future", httpx.Response(400, json={"detail": ADAPTERS})),  # asking again changes nothing
        ("/api/v1/retrieve_future", httpx.Response(408, json=paused("paused_capacity"))),  # the SDK asks again
        ("/api/v1/asample", httpx.Response(429)),  # the SDK holds back all samples together
        ("/api/v1/session_heartbeat", httpx.Response(429)),
    ],
)
async def test_other_answers_are_the_sdks(path: str, answer: httpx.Response) -> None:
    response, asked = await sent(path, answer)
    assert (response.status_code, asked) == (answer.status_code, 1)


async def test_a_stop_ends_the_hold_of_a_step_and_of_what_follows_it() -> None:
    held = asyncio.ensure_future(sent("/api/v1/forward_backward", httpx.Response(429, headers={"retry-after": "300"})))
    async with asyncio.timeout(60):
        while HEARD.paused(TRAINING) is None:
            await asyncio.sleep(0)
        HEARD.stopping = True
        assert (await held)[0].status_code == WITHDRAWN
    assert HEARD.paused(TRAINING) is None
    assert (await sent("/api/v1/optim_step", httpx.Response(200)))[0].status_code == WITHDRAWN


async def test_a_stop_shortens_the_wait_of_a_save() -> None:
    """What is trained is saved: it is neither withdrawn nor held through the grace period."""
    full = httpx.Response(429, headers={"retry-after": "300"})
    saving = asyncio.ensure_future(sent("/api/v1/save_weights", full, full, httpx.Response(200, json={})))
    async with asyncio.timeout(60):
        while HEARD.paused(TRAINING) is None:
            await asyncio.sleep(0)
        HEARD.stopping = True
        saved, asked = await saving
    assert (saved.status_code, asked) == (200, 3)


@pytest.mark.parametrize("path", ["create_model", "retrieve_future", "asample"])
@pytest.mark.parametrize(
    "page", [LOGIN, httpx.Response(302), *(httpx.Response(status, html="<h1>") for status in (400, 401, 402, 403, 404))]
)
async def test_a_page_is_no_answer_of_the_api(path: str, page: httpx.Response) -> None:
    """The SDK gets what it tries again."""
    response, _ = await sent(f"/api/v1/{path}", page)
    assert (response.status_code, response.json()) == (502, {"detail": meaning_of(page).said})
    assert HEARD.trouble() == meaning_of(page).said


@pytest.mark.parametrize("path", ["create_model", "retrieve_future", "session_heartbeat"])
@pytest.mark.parametrize("status", [200, 401, 429, 500])
async def test_a_backend_that_repeats_the_key_tells_it_to_nobody(path: str, status: int) -> None:
    repeating = httpx.Response(status, json={"error": "invalid key tml-k"}, headers=RETRY_AT_ONCE)
    response, _ = await sent(f"/api/v1/{path}", repeating, httpx.Response(200, json={}), **{"X-API-Key": "tml-k"})
    assert "tml-k" not in response.text
    assert response.headers["content-type"] == "application/json"
    assert "tml-k" not in str(HEARD)


async def test_the_exchange_of_a_key_is_as_the_backend_says() -> None:
    exchanged = httpx.Response(200, json={"jwt": "eyJ-k"})
    response, _ = await sent("/api/v1/auth/token", exchanged, **{"X-API-Key": "eyJ-k"})
    assert response.json() == {"jwt": "eyJ-k"}


async def test_results_of_samples_are_told_from_those_of_training() -> None:
    pause = httpx.Response(408, json=paused("paused_capacity"))
    await sent("/api/v1/retrieve_future", pause, **{"X-Tinker-Request-Type": "Sample"})
    assert HEARD.paused(SAMPLING) is not None
    assert HEARD.paused(TRAINING) is None
    await sent("/api/v1/asample", httpx.Response(200, json={"request_id": "2"}))
    assert HEARD.paused(SAMPLING) is not None, "another sample is taken in hand, and waits like the others"
    await sent("/api/v1/retrieve_future", httpx.Response(200, json={}), **{"X-Tinker-Request-Type": "Sample"})
    assert HEARD.paused(SAMPLING) is None


def test_a_pause_is_told_when_it_lasts_and_while_it_does(heard_clock: Clock) -> None:
    still = HEARD.standstill
    HEARD.hear(RESULT, SHORT)
    HEARD.look()
    assert still.pause is None, "a moment's pause is no news"
    heard_clock.seconds = PATIENCE_SECONDS
    HEARD.hear(RESULT, SHORT)
    HEARD.look()
    assert still.pause is not None
    assert (still.pause.cause, still.seconds) == ("BackendPaused", PATIENCE_SECONDS)
    HEARD.hear(RESULT, ANSWER)
    HEARD.look()
    assert still.pause is None
    assert still.resumed_at is not None


async def test_housekeeping_is_not_held_and_pauses_no_run(heard_clock: Clock) -> None:
    ASKED.set(HOUSEKEEPING)
    response, asked = await sent("/api/v1/checkpoints", httpx.Response(429))
    assert (response.status_code, asked) == (429, 1)
    assert HEARD.paused(HOUSEKEEPING) is not None
    assert HEARD.paused(TRAINING) is None
    heard_clock.seconds = PATIENCE_SECONDS
    HEARD.look()
    assert HEARD.standstill.pause is None


async def test_what_is_asked_is_known_in_the_sdks_thread() -> None:
    def asked() -> "Future[str]":
        answer: Future[str] = Future()
        answer.set_result(ASKED.get())
        return answer

    assert await submitted("listing", Patience(30, asked=HOUSEKEEPING), asked) == HOUSEKEEPING
    assert await submitted("creating", Patience(30), asked) == TRAINING


def test_a_pause_whose_cause_changes_is_one(heard_clock: Clock) -> None:
    for second in range(0, 60, 2):
        heard_clock.seconds = second
        HEARD.hear(RESULT, AnswerMeaning("BackendFull" if second % 4 else "BackendPaused", "x"))
        HEARD.look()
    paused = HEARD.paused(TRAINING)
    assert paused is not None
    assert (paused.since, HEARD.standstill.seconds) == (0, 58)


def test_a_pause_of_what_is_no_longer_asked_is_over(heard_clock: Clock) -> None:
    HEARD.hear((SAMPLING, "result"), SHORT)
    heard_clock.seconds = 110
    HEARD.look()
    assert HEARD.paused(SAMPLING) is not None
    heard_clock.seconds = 130
    HEARD.look()
    assert HEARD.paused(SAMPLING) is None


class Unanswered:
    """A future of the SDK."""

    def __init__(self) -> None:
        self.result: Future[str] = Future()

    def future(self) -> "Future[str]":
        return self.result


async def waiting(patience: Patience, hear: Callable[[], None], clock: Clock, monkeypatch: pytest.MonkeyPatch) -> str:
    """The end of a call that is answered after 200 looks, a second apart; `hear` happens before each of them."""
    future, seen = Unanswered(), iter(range(200))

    def look(_self: BackendAnswers) -> None:
        clock.seconds += 1
        if next(seen, None) is not None:
            hear()
        elif not future.result.done():
            future.result.set_result("done")

    monkeypatch.setattr(BackendAnswers, "look", look)
    monkeypatch.setattr("tinker_atropos.trainer.backend.sdk_calls.LOOK_SECONDS", 0.002)
    async with asyncio.timeout(60):
        return str(await answered("forward_backward", patience, Request(lambda: future)))


async def test_an_answer_renews_the_deadline_and_a_pause_has_its_own(heard_clock: Clock, monkeypatch) -> None:
    assert await waiting(Patience(10), lambda: HEARD.hear(RESULT, SHORT), heard_clock, monkeypatch) == "done"
    HEARD.hear(RESULT, ANSWER)
    at_work = await waiting(Patience(10), lambda: HEARD.hear(RESULT, ANSWER), heard_clock, monkeypatch)
    assert at_work == "done", "try again, it is at work"
    with pytest.raises(BackendError, match=r"backend_pause_seconds \(30 s\): short"):
        await waiting(Patience(10, pause=30), lambda: HEARD.hear(RESULT, SHORT), heard_clock, monkeypatch)


async def test_another_kind_of_answer_does_not_renew_it(heard_clock: Clock, monkeypatch) -> None:
    with pytest.raises(BackendError, match="no answer within"):
        await waiting(Patience(10), lambda: HEARD.hear((SAMPLING, "result"), ANSWER), heard_clock, monkeypatch)


async def test_until_it_is_asked_again_the_silence_is_ours(heard_clock: Clock, monkeypatch) -> None:
    HEARD.hear(RESULT, SHORT, again_in=100)
    HEARD.hear((TRAINING, "request"), ANSWER)
    with pytest.raises(BackendError, match="no answer within"):
        await waiting(Patience(10), lambda: None, heard_clock, monkeypatch)
    assert heard_clock.seconds > 100


async def test_nothing_but_errors_is_told_as_what_was_answered(heard_clock: Clock, monkeypatch) -> None:
    boom = AnswerMeaning(said="HTTP 500: boom")
    with pytest.raises(BackendError, match=r"\(10 s\): it answers HTTP 500: boom"):
        await waiting(Patience(10), lambda: HEARD.hear((TRAINING, "request"), boom), heard_clock, monkeypatch)


class Submission:
    """Fails so often for want of room, as a server does that takes the request first."""

    def __init__(self, said: str, times: int) -> None:
        self.said, self.times = said, times

    def __call__(self) -> "Submission":
        return self

    def result(self) -> str:
        self.times -= 1
        if self.times < 0:
            return "done"
        raise tinker.RequestFailedError(f"Request failed: {self.said}", "1", RequestErrorCategory.User)


async def test_what_is_taken_in_hand_without_room_is_submitted_again(monkeypatch) -> None:
    monkeypatch.setattr("tinker_atropos.trainer.backend.sdk_calls.FIRST_PAUSE_SECONDS", 0.01)
    assert await submitted("creating", Patience(30), Submission(ADAPTERS, 3)) == "done"
    with pytest.raises(ConfigError):
        await submitted("creating", Patience(30), Submission(WRONG[0], 3))
    assert HEARD.paused(TRAINING) is None


async def test_what_there_is_never_room_for_ends_with_the_longest_pause(heard_clock: Clock, monkeypatch) -> None:
    def look(_self: BackendAnswers) -> None:
        heard_clock.seconds += 1

    monkeypatch.setattr(BackendAnswers, "look", look)
    monkeypatch.setattr("tinker_atropos.trainer.backend.sdk_calls.LOOK_SECONDS", 0.002)
    with pytest.raises(BackendError, match="backend_pause_seconds"):
        await submitted("creating", Patience(1e6, pause=30), Submission(ADAPTERS, 10**6))
    assert HEARD.paused(TRAINING) is None
    assert heard_clock.seconds >= 30


def test_the_sdk_is_as_we_found_it() -> None:
    """It builds each of its clients by this name, which is replaced."""
    assert _base_client.AsyncHttpxClientWrapper is HeardClient
    client = AsyncTinker(_auth=ApiKeyAuthProvider("tml-x"), base_url="http://backend")
    assert isinstance(client._client, HeardClient)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_the_key(status: int) -> None:
    """It is in a header that httpx would take along to any host."""
    asked: list[str] = []

    def redirecting(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(status, headers={"location": "http://elsewhere/steal"})

    client = AsyncTinker(_auth=ApiKeyAuthProvider("tml-x"), base_url="http://backend", max_retries=0)
    async with HeardClient(base_url="http://backend", transport=httpx.MockTransport(redirecting)) as heard:
        client._client = heard
        with pytest.raises(tinker.APIStatusError):
            await client.get("/api/v1/healthz", cast_to=object)
    assert asked == ["http://backend/api/v1/healthz"]
