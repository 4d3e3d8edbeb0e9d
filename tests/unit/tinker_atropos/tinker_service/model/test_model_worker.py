"""Order of submission, batching of one sampler's waiting requests, and errors that stay with their job."""

import threading
from collections.abc import Iterator, Sequence

import pytest
import torch

from tinker_atropos.tinker_service.model.batched_sampling import SamplingRequest
from tinker_atropos.tinker_service.model.model_worker import MAX_BATCH_TOKENS, Job, SampleJob, Worker, fitting_batch
from tinker_atropos.tinker_service.request_errors import RequestError

REQUEST = SamplingRequest(prompt=(1, 2), num_samples=1, max_tokens=8)


class Recorder:
    """Records samples instead of running them; holds the worker until `opened`."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.batches: list[list[str]] = []
        self.worker = Worker(self.run_samples)

    def run_samples(self, jobs: Sequence[SampleJob]) -> Sequence[int]:
        self.batches.append([job.sampler_id for job in jobs])
        return list(range(len(jobs)))

    def hold(self) -> None:
        self.worker.submit(Job(lambda: self.opened.wait(60)))

    def sample(self, sampler_id: str) -> SampleJob:
        job = SampleJob(sampler_id, None, REQUEST)
        self.worker.submit(job)
        return job


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.opened.set()
    recorder.worker.stop()


def test_waiting_requests_of_one_sampler_run_together(recorder: Recorder) -> None:
    recorder.hold()
    jobs = [recorder.sample(name) for name in "abaab"]
    recorder.opened.set()
    assert [job.future.result(10) for job in jobs] == [0, 0, 1, 2, 1]
    assert recorder.batches == [["a", "a", "a"], ["b", "b"]]


def test_samples_for_a_canceled_request_are_discarded() -> None:
    under_way, cancelled = threading.Event(), threading.Event()

    def sample(jobs: Sequence[SampleJob]) -> Sequence[str]:
        under_way.set()
        assert cancelled.wait(60)
        return ["whole" if not job.future.given_up else "a part" for job in jobs]

    worker, job = Worker(sample), SampleJob("a", None, REQUEST)
    worker.submit(job)
    assert under_way.wait(60)
    job.future.cancel()
    cancelled.set()
    with pytest.raises(RequestError, match="the request was cancelled"):
        job.future.result(10)
    worker.stop()


def test_jobs_run_in_order_of_submission(recorder: Recorder) -> None:
    recorder.hold()
    order: list[int] = []
    futures = [recorder.worker.submit(Job(lambda number=number: order.append(number))) for number in range(5)]
    recorder.opened.set()
    for future in futures:
        future.result(10)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [RequestError("no"), ZeroDivisionError("broken")])
def test_an_error_reaches_its_job_and_the_next_job_runs(recorder: Recorder, error: Exception) -> None:
    def fail() -> None:
        raise error

    failed = recorder.worker.submit(Job(fail))
    after = recorder.worker.submit(Job(lambda: "ran"))
    assert failed.exception(10) is error
    assert after.result(10) == "ran"


def test_samples_that_exceed_memory_together_run_in_halves() -> None:
    sizes: list[int] = []

    def run_samples(jobs: Sequence[SampleJob]) -> list[int]:
        sizes.append(len(jobs))
        if len(jobs) > 2 or jobs[0].request.num_samples > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [job.request.max_tokens for job in jobs]

    worker, opened = Worker(run_samples), threading.Event()
    worker.submit(Job(lambda: opened.wait(60)))
    jobs = [SampleJob("a", None, SamplingRequest((1,), num_samples=1, max_tokens=number)) for number in range(1, 6)]
    futures = [worker.submit(job) for job in jobs]
    opened.set()
    assert [future.result(10) for future in futures] == [1, 2, 3, 4, 5]
    assert sizes == [5, 2, 3, 1, 2]
    error = worker.submit(SampleJob("a", None, SamplingRequest((1,), num_samples=3, max_tokens=1))).exception(10)
    assert isinstance(error, RequestError)
    assert "no memory left for this request: ask for fewer samples" in str(error)
    worker.stop()


def test_a_cancelled_request_is_not_run(recorder: Recorder) -> None:
    recorder.hold()
    first, second = recorder.sample("a"), recorder.sample("a")
    assert first.future.cancel()
    recorder.opened.set()
    assert second.future.result(10) == 0
    assert recorder.batches == [["a"]]


def test_a_batch_fits_the_cache_and_a_single_request_always_runs() -> None:
    large = SamplingRequest(prompt=(1,) * 10, num_samples=1, max_tokens=MAX_BATCH_TOKENS // 2 - 10)
    huge = SamplingRequest(prompt=(1,), num_samples=2, max_tokens=MAX_BATCH_TOKENS)
    waiting = [SampleJob("a", None, request) for request in (large, large, REQUEST)]
    assert fitting_batch(waiting[0], waiting) == waiting[:2]
    head = SampleJob("a", None, huge)
    assert fitting_batch(head, [head, *waiting]) == [head]


def test_a_long_prompt_pads_the_short_ones_next_to_it() -> None:
    long = SamplingRequest(prompt=(1,) * (MAX_BATCH_TOKENS // 4 - 8), num_samples=1, max_tokens=8)
    waiting = [SampleJob("a", None, request) for request in (long, *[REQUEST] * 9)]
    assert fitting_batch(waiting[0], waiting) == waiting[:4]
    assert fitting_batch(waiting[1], waiting[1:]) == waiting[1:]
