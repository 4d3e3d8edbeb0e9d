"""One thread runs everything that touches the model: jobs in order of submission and, between them, sampling.

Sampling goes on token by token, so that neither keeps the other waiting for long: after each job comes one step of the
batch, and after each step the next job. A sampler is a snapshot, so the order of jobs and samples is not observable.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from tinker_service.model.sampling.sample_jobs import SampleAnswer, SampleJob
from tinker_service.model.sampling.sampling_batch import SamplingBatch
from tinker_service.service_errors import RequestError

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.002  # when nothing runs, the first sample request waits so long for the next of its burst ...
MAX_GATHER_SECONDS = 0.02  # ... and at most so long in total

_NO_MEMORY = (
    "the service's GPU has no memory left for this request: ask for fewer samples, or send fewer or shorter sequences"
)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work on the model; `run` is called on the worker's thread."""

    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


AnswerSamples = Callable[[Sequence[SampleJob]], Sequence[SampleAnswer]]


class Worker:
    """Owns the thread. `answer` turns jobs of the batch that have finished into answers; `observe` gets the number of
    sequences after each step.
    """

    def __init__(
        self, batch: SamplingBatch, answer: AnswerSamples, observe: Callable[[int], None] = lambda _running: None
    ) -> None:
        self._batch, self._answer, self._observe = batch, answer, observe
        self._jobs: deque[Job] = deque()
        self._samples: deque[SampleJob] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs and sample requests have not started."""
        return len(self._jobs) + len(self._samples) + self._batch.waiting

    def submit(self, job: Job | SampleJob) -> Future[Any]:
        with self._changed:
            if isinstance(job, Job):
                self._jobs.append(job)
            else:
                self._samples.append(job)
            self._changed.notify()
        return job.future

    def stop(self) -> None:
        """Finish the current job or step and drop the rest. Does not wait: a long job must not delay the process's
        exit.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _loop(self) -> None:
        while self._wait():
            if self._jobs:
                self._run(self._jobs.popleft())
            while self._samples:
                sample = self._samples.popleft()
                if sample.future.set_running_or_notify_cancel():
                    self._batch.add(sample)
            self._sample()

    def _wait(self) -> bool:
        """Until there is something to do; False: stop."""
        with self._changed:
            if not self._batch.jobs:
                self._changed.wait_for(lambda: self._jobs or self._samples or self._stopping)
                if not self._jobs:
                    self._gather()
            return not self._stopping

    def _gather(self) -> None:
        """Let the rest of a burst arrive: stop when nothing new has arrived for a moment."""
        deadline = time.monotonic() + MAX_GATHER_SECONDS
        seen = len(self._samples)
        while time.monotonic() < deadline and not self._stopping:
            if not self._changed.wait_for(lambda: len(self._samples) > seen, timeout=GATHER_SECONDS):  # noqa: B023 -- called immediately
                return
            seen = len(self._samples)

    def _run(self, job: Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            job.future.set_result(job.run())
        except Exception as error:  # noqa: BLE001 -- the thread serves all clients: one bad job must not end it
            job.future.set_exception(_told(error))

    def _sample(self) -> None:
        """One token for every running sequence, and the answers to the requests that are finished."""
        try:
            finished = self._batch.step()
        except torch.OutOfMemoryError as error:
            log.warning("no memory for a step of sampling: %s", error)
            finished = None  # dealt with below: in here the traceback keeps the step's tensors alive
        except Exception as error:  # as in _run
            log.exception("sampling failed")
            finished = []
            for job in self._batch.jobs:
                self._batch.fail(job, error)
        if finished is None:
            self._batch.make_room(RequestError(_NO_MEMORY))
        elif finished:
            self._finish(finished)
        self._observe(self._batch.running)

    def _finish(self, samples: Sequence[SampleJob]) -> None:
        try:
            answers = self._answer(samples)
        except Exception as error:  # noqa: BLE001 -- as in _run
            for sample in samples:
                sample.future.set_exception(_told(error))
        else:
            for sample, answer in zip(samples, answers, strict=True):
                sample.future.set_result(answer)


def _told(error: Exception) -> Exception:
    """What the client learns of a request that failed; the log has what is not its own fault."""
    if isinstance(error, torch.OutOfMemoryError):
        log.warning("no memory for a request: %s", error)
        return RequestError(_NO_MEMORY)
    if not isinstance(error, RequestError):
        log.error("a request failed", exc_info=error)
    return error
