"""Calls to the tinker SDK: awaited for as long as the backend says that it is at work or has to wait, and off the event
loop where the SDK would block it; and samples and logprobs of one snapshot.

Its errors are translated to those of this package, which are named by who must act.
"""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tinker
from pydantic import ValidationError
from tinker import types
from tinker.types import RequestErrorCategory

from tinker_atropos.chat.sampling import Floats, Ints, Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    ConfigError,
    CredentialsError,
    DivergedError,
    RunError,
    WithdrawnError,
    in_one_line,
)
from tinker_atropos.trainer.backend.answers import (
    ASKED,
    FIRST_PAUSE_SECONDS,
    HEARD,
    HOUSEKEEPING,
    LONGEST_PAUSE_SECONDS,
    WITHDRAWN,
    AnswerMeaning,
    Asked,
    Heard,
    Patience,
    held,
    is_full,
)
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.divergence import check_sample

LOOK_SECONDS = 5.0
"""Longest time between two looks at what the backend has answered meanwhile."""


@dataclass(frozen=True, slots=True)
class TinkerSampler:
    """A Sampler over one snapshot."""

    client: tinker.SamplingClient
    patience: Patience
    training_run_id: str
    used: TokenUse

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        params = types.SamplingParams(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            stop=settings.stop,
            seed=settings.seed,
        )
        with self.used.sampling(len(prompt_T), n, settings.max_tokens) as answered_with:
            # Cancelling this wait cancels the request at the backend.
            response = await self._answer("sampling", lambda: self.client.sample(_prompt(prompt_T), n, params))
            samples = [_sample(sequence) for sequence in response.sequences]
            answered_with(sum(len(sample.tokens_T) for sample in samples))
        for sample in samples:
            check_sample(sample.logprobs_T)
        return samples

    async def logprobs(self, tokens_T: Ints) -> Floats:
        self.used.prefill += len(tokens_T)
        answer = await self._answer("computing logprobs", lambda: self.client.compute_logprobs(_prompt(tokens_T)))
        return np.array([np.nan if logprob is None else logprob for logprob in answer], np.float64)

    async def _answer(self, doing: str, ask: Callable[[], Any]) -> Any:
        try:
            return await answered(doing, self.patience, Request(ask, of_a_step=False))
        except BackendLostError as error:
            if refused(error) and not gone(error):
                raise SampleRefusedError(str(error)) from error
            error.training_run_id = self.training_run_id
            raise


def _prompt(tokens_T: Ints) -> types.ModelInput:
    return types.ModelInput.from_ints(tokens_T.tolist())


def _sample(sequence: types.SampledSequence) -> Sample:
    tokens_T = np.asarray(sequence.tokens, np.int64)
    logprobs_T = np.asarray(sequence.logprobs, np.float64)
    return Sample(tokens_T, logprobs_T, "length" if sequence.stop_reason == "length" else "stop")


_REFUSED = (400, 404, 409, 422)
_TELLING = (tinker.APIError, tinker.RequestFailedError, ValidationError)


class CheckpointGoneError(BackendError):
    """The backend does not have this checkpoint (anymore): its TTL has expired, or it was deleted."""


def translate(error: BaseException, doing: str, *, opening: bool = False) -> RunError:
    """The RunError that an SDK error means.

    | the backend                       | while a run is opened | later            |
    |-----------------------------------|-----------------------|------------------|
    | 401, 403                          | CredentialsError      | CredentialsError |
    | 402                               | BillingError          | BillingError     |
    | 400, 404, 409, 422, a user error  | ConfigError           | BackendLostError |
    | a metric that is null             | DivergedError         | DivergedError    |
    | no answer, or none but errors,    | BackendError          | BackendError     |
    | or a pause that lasts too long    |                       |                  |
    | anything else                     | BackendError          | BackendLostError |

    A refusal while a run is being opened is about its configuration. Later, the same answer (say, an unknown model)
    means that the backend has lost its state. JSON has no NaN: many servers write null instead. 408, 5xx and lost
    connections arrive here only after the SDK has retried for minutes, and 429 never: it is waited out (`answers.py`).
    """
    cause = _root(error)
    status = cause.status_code if isinstance(cause, tinker.APIStatusError) else None
    if isinstance(cause, TimeoutError):
        return BackendError(f"{doing}: {str(cause) or 'no answer'}")
    if isinstance(cause, ValidationError) and (nulls := _null_metrics(cause)):
        return DivergedError(f"{doing}: the backend answered with numbers that are not finite ({', '.join(nulls)})")
    if untaken(cause) or isinstance(cause, WithdrawnError):
        return WithdrawnError(f"{doing}: the backend had not accepted it when the run was stopped")
    if status in (401, 403) or (opening and type(cause) is tinker.TinkerError):
        return CredentialsError(f"{doing}: the backend does not accept TINKER_API_KEY: {_sentence(cause)}")
    if status == 402:
        return BillingError(f"{doing}: the backend wants payment: {_sentence(cause)}")
    if not opening:
        return BackendLostError(f"{doing}: {_sentence(cause)}")
    if refused(cause):
        return ConfigError(f"{doing}: the backend refused: {_sentence(cause)}")
    return BackendError(f"{doing}: {_sentence(cause)}")


def refused(error: BaseException) -> bool:
    """Whether the backend rejected the request itself."""
    error = _root(error)
    if isinstance(error, tinker.RequestFailedError):
        return error.category is RequestErrorCategory.User
    return isinstance(error, tinker.APIStatusError) and error.status_code in _REFUSED


def undone(error: BaseException | None) -> bool:
    """Whether the result of a request is that the backend did not do it."""
    return error is not None and isinstance(_root(error), tinker.RequestFailedError)


def untaken(error: BaseException | None) -> bool:
    """Whether a request was withdrawn before the backend took it."""
    return (
        error is not None
        and isinstance(found := _root(error), tinker.APIStatusError)
        and found.status_code == WITHDRAWN
    )


def gone(error: BaseException) -> bool:
    """Whether the backend reports that the named object does not exist (anymore)."""
    error = _root(error)
    return isinstance(error, tinker.APIStatusError) and error.status_code in (404, 410)


def gone_or(error: RunError) -> RunError:
    """A CheckpointGoneError if the backend no longer has what the error names, else the error itself."""
    return CheckpointGoneError(str(error)) if gone(error) else error


def _root(error: BaseException) -> BaseException:
    """The backend's answer behind the SDK's own errors (a poisoned client, a result that cannot be fetched)."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, _TELLING):
        cause = cause.__cause__
    return error if cause is None else cause


def _null_metrics(error: ValidationError) -> list[str]:
    """The metrics of an answer that the SDK refused because they are null."""
    found = [each for each in error.errors() if each["input"] is None and each["loc"][:1] == ("metrics",)]
    return [".".join(map(str, each["loc"])) for each in found]


def _sentence(error: BaseException) -> str:
    """The backend's own message, without the SDK's wrapping."""
    if isinstance(error, tinker.APIStatusError):
        said = f"{error.body.get('detail', error.message)} " if isinstance(error.body, dict) else ""
        return f"{said}(HTTP {error.status_code})"
    if isinstance(error, tinker.RequestFailedError):
        return error.message.removeprefix("Request failed: ").split(" for self.request_id=")[0]
    if isinstance(error, ValidationError):
        return f"the backend's answer is not what the SDK expects: {in_one_line(error)}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


T = TypeVar("T")


async def submitted(doing: str, patience: Patience, submit: Callable[[], Any], *, opening: bool = True) -> Any:
    """Submit in a thread (the SDK blocks while it opens a session) and wait for the result."""
    ask = functools.partial(in_thread, lambda: submit().result())
    try:
        return await _in_time(patience, _once_there_is_room(ask, patience.asked))
    except Exception as error:  # the SDK's errors have no common base
        raise translate(error, doing, opening=opening) from error


@dataclass(slots=True)
class Request:
    """Sent at once; `future` is the SDK's. `behind` are those of a step that were sent after it.

    `of_a_step`: a stop withdraws it. `trains`: it changes the weights or their gradient. `parts`: how many requests the
    SDK makes of it.
    """

    send: Callable[[], Any]
    of_a_step: bool = True
    trains: bool = False
    parts: int = 1
    behind: Sequence["Request"] = ()
    future: Any = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.send()

    async def result(self) -> Any:
        return await asyncio.wrap_future(self.future.future())

    async def again(self) -> bool:
        """Send it, which was refused for want of room, and what is behind it, which was told the same. False if any
        that trains was done instead, as an optimizer's step without its gradient, or may have been in part: nothing is
        done twice, and these weights are lost.
        """
        requests = (self, *self.behind)
        await settled(requests)
        training = (each for each in requests if each.trains)
        if any(each.parts > 1 or not undone(each.future.future().exception()) for each in training):
            return False
        for each in requests:
            each.future = each.send()
        return True


async def answered(doing: str, patience: Patience, request: Request) -> Any:
    """Wait for the result; giving up cancels the request."""
    try:
        return await _in_time(patience, _once_there_is_room(request.result, patience.asked, request))
    except Exception as error:  # the SDK's errors have no common base
        raise translate(error, doing) from error


async def _once_there_is_room(ask: Callable[[], Awaitable[T]], asked: Asked, request: Request | None = None) -> T:
    """The result. What the backend takes in hand and then has no room for was not done, whatever it is: a sampler, a
    sample, a gradient, a checkpoint of this name. So it is asked again.
    """
    ASKED.set(asked)  # for this task, which nothing else runs in
    heard: Heard = (asked, object())
    pause, of_a_step = FIRST_PAUSE_SECONDS, request is not None and request.of_a_step
    trains = request is not None and request.trains
    try:
        while True:
            try:
                return await ask()
            except Exception as error:  # the SDK's errors have no common base
                said = _sentence(_root(error))
                if not ((undone(error) or refused(error)) and is_full(said, trains=trains)):
                    raise
                HEARD.hear(heard, AnswerMeaning("BackendFull", said), pause)
                await held(pause, of_a_step=of_a_step)
                if of_a_step and HEARD.withdrawn:
                    raise WithdrawnError from None
                if request and not await request.again():
                    raise
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    finally:
        HEARD.over(heard)


async def settled(requests: Iterable[Request]) -> None:
    """Wait until each has a result or has failed."""
    await asyncio.gather(*(each.result() for each in requests), return_exceptions=True)


async def _in_time(patience: Patience, work: Awaitable[T]) -> T:
    """The work's result, unless the backend is silent for too long, answers with nothing but errors, or lets it pause
    for too long: TimeoutError. A time in which this process did not run is not the backend's.
    """
    working, silent = asyncio.ensure_future(work), 0.0
    try:
        while not working.done():
            look, begun = min(LOOK_SECONDS, patience.silence - silent), HEARD.clock()
            await asyncio.wait({working}, timeout=look)
            HEARD.look()
            if working.done():
                break
            _check_pause(patience)
            alive = HEARD.alive_until(patience.asked) >= begun
            silent = 0.0 if alive else silent + min(HEARD.clock() - begun, look + 1.0)
            if silent >= patience.silence:
                trouble = HEARD.trouble(patience.asked)
                why = f": it answers {trouble}" if trouble else ""
                raise TimeoutError(
                    f"no answer within {_limit('backend_deadline', patience.silence, patience.asked)}{why}"
                )
        return working.result()
    finally:
        if working.cancel():
            await asyncio.sleep(0)  # only then the SDK hears of it


def _check_pause(patience: Patience) -> None:
    paused = HEARD.paused(patience.asked)
    if paused and HEARD.clock() - paused.since >= patience.pause:
        limit = _limit("backend_pause", patience.pause, patience.asked)
        raise TimeoutError(f"{paused.what} for longer than {limit}: {paused.reason}")


def _limit(setting: str, seconds: float, asked: Asked) -> str:
    return f"{seconds:g} s" if asked == HOUSEKEEPING else f"trainer.{setting}_seconds ({seconds:g} s)"


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a daemon thread: one that never returns must not keep the process alive."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 -- passed to the waiting coroutine
            future.set_exception(error)
        else:
            future.set_result(result)

    future.set_running_or_notify_cancel()
    threading.Thread(target=run, daemon=True, name="tinker-open").start()
    return await asyncio.wrap_future(future)
