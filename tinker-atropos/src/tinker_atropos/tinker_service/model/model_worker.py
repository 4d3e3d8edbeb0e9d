"""One thread runs everything that touches the model, in order of submission.

One exception: sample requests of the same sampler that wait at the same time run as one batch. A sampler is a
snapshot, so this is not observable.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from tinker_atropos.tinker_service.model.batched_sampling import SamplingRequest
from tinker_atropos.tinker_service.model.lora import Adapter
from tinker_atropos.tinker_service.model.scoring import PromptScoring
from tinker_atropos.tinker_service.request_errors import CANCELLED, RequestError

log = logging.getLogger(__name__)

MAX_BATCH_TOKENS = 65_536  # size of one sampling batch in the KV cache, if nothing stops early
GATHER_SECONDS = 0.004  # how long a sample request waits for the next of its burst ...
MAX_GATHER_SECONDS = 0.03  # ... and at most in total

_NO_MEMORY = (
    "the service's GPU has no memory left for this request: ask for fewer samples, or send fewer or shorter sequences"
)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Work on the model; `run` is called on the worker's thread."""

    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class SampleFuture(Future[Any]):
    """A future that can be canceled while it runs: sampling then stops at the next token, and the partial result is
    discarded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given_up = False

    def cancel(self) -> bool:
        self.given_up = True
        return super().cancel()

    def set_result(self, result: Any) -> None:
        if self.given_up:
            self.set_exception(RequestError(CANCELLED))
        else:
            super().set_result(result)


@dataclass(frozen=True, slots=True, eq=False)
class SampleJob:
    """One sample request of a sampler, and which scores of its prompt it requests."""

    sampler_id: str
    adapter: Adapter | None
    request: SamplingRequest
    scoring: PromptScoring | None = None
    future: SampleFuture = field(default_factory=SampleFuture)


RunSamples = Callable[[Sequence[SampleJob]], Sequence[Any]]


class Worker:
    """Owns the thread. `run_samples` gets jobs of one sampler and returns one result per job."""

    def __init__(self, run_samples: RunSamples) -> None:
        self._run_samples = run_samples
        self._waiting: list[Job | SampleJob] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many jobs are queued."""
        return len(self._waiting)

    def submit(self, job: Job | SampleJob) -> Future[Any]:
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def stop(self) -> None:
        """Finish the current job and drop the rest. Does not wait: a long job must not delay the process's exit."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _loop(self) -> None:
        while (batch := self._next()) is not None:
            running = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                results = self._run(running)
            except RequestError as error:
                _fail(running, error)
            except torch.OutOfMemoryError as error:
                log.warning("no memory for a request: %s", error)
                _fail(running, RequestError(_NO_MEMORY))
            except Exception as error:  # the thread serves all clients: one bad job must not end it
                log.exception("a request failed")
                _fail(running, error)
            else:
                for job, result in zip(running, results, strict=True):
                    job.future.set_result(result)

    def _run(self, batch: Sequence[Job | SampleJob]) -> Sequence[Any]:
        first = batch[0]
        if isinstance(first, Job):
            return [first.run()]
        return self._sampled([job for job in batch if isinstance(job, SampleJob)])

    def _sampled(self, jobs: Sequence[SampleJob]) -> Sequence[Any]:
        """Run the jobs together or, if they do not fit into the GPU's memory, one half after the other."""
        try:
            return self._run_samples(jobs)
        except torch.OutOfMemoryError:
            if len(jobs) == 1:
                raise
        middle = len(jobs) // 2  # not in the handler: the traceback keeps the failed attempt's tensors alive
        return [*self._sampled(jobs[:middle]), *self._sampled(jobs[middle:])]

    def _next(self) -> Sequence[Job | SampleJob] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            if self._stopping:
                return None
            head = self._waiting[0]
            if isinstance(head, SampleJob):
                self._gather()
                batch: Sequence[Job | SampleJob] = fitting_batch(head, self._waiting)
            else:
                batch = [head]
            for job in batch:
                self._waiting.remove(job)
            return batch

    def _gather(self) -> None:
        """Let the rest of a burst arrive: stop when nothing new has arrived for a moment."""
        deadline = time.monotonic() + MAX_GATHER_SECONDS
        seen = len(self._waiting)
        while time.monotonic() < deadline and not self._stopping:
            if not self._changed.wait_for(lambda: len(self._waiting) > seen, timeout=GATHER_SECONDS):  # noqa: B023 -- called immediately
                return
            seen = len(self._waiting)


def fitting_batch(head: SampleJob, waiting: Sequence[Job | SampleJob]) -> list[SampleJob]:
    """The waiting jobs of the head's sampler, in order, as far as they fit; the head always does.

    Every row takes as much space as the longest prompt and the longest answer: prompts are padded to one length.
    """
    batch = [head]
    rows, prompt, answer = head.request.num_samples, len(head.request.prompt), head.request.max_tokens
    for job in waiting:
        if not isinstance(job, SampleJob) or job is head or job.sampler_id != head.sampler_id:
            continue
        rows += job.request.num_samples
        prompt, answer = max(prompt, len(job.request.prompt)), max(answer, job.request.max_tokens)
        if rows * (prompt + answer) > MAX_BATCH_TOKENS:
            break
        batch.append(job)
    return batch


def _fail(jobs: Sequence[Job | SampleJob], error: Exception) -> None:
    for job in jobs:
        job.future.set_exception(error)
