"""Jobs in order of submission with sampling between them, and errors that stay with their job."""

import threading
from collections.abc import Iterator

import pytest
import torch

from tinker_service.model.engine import Engine
from tinker_service.model.model_worker import Job, Worker
from tinker_service.model.sampling.sample_jobs import PromptScoring, SampleJob, SamplingRequest
from tinker_service.service_errors import CANCELLED, DroppedError, RequestError

SHORT = SamplingRequest(prompt=(5, 6), num_samples=1, max_tokens=3, seed=1)
LONG = SamplingRequest(prompt=(5, 6), num_samples=1, max_tokens=500, seed=1)


@pytest.fixture
def steps() -> list[int]:
    """The number of sequences after each step."""
    return []


@pytest.fixture
def worker(engine: Engine, steps: list[int]) -> Iterator[Worker]:
    worker = Worker(engine.new_batch(), engine.answer, steps.append)
    yield worker
    worker.stop()


@pytest.fixture
def held(worker: Worker) -> Iterator[threading.Event]:
    """The worker waits in a job until this is set."""
    begun, opened = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        opened.wait(60)

    worker.submit(Job(hold))
    assert begun.wait(60)
    yield opened
    opened.set()


def submitted(worker: Worker, request: SamplingRequest = SHORT, **changes: object) -> SampleJob:
    job = SampleJob(None, request, **changes)
    worker.submit(job)
    return job


def test_waiting_requests_run_together(worker: Worker, held: threading.Event, steps: list[int]) -> None:
    jobs = [submitted(worker) for _ in range(5)]
    assert worker.waiting == 5
    held.set()
    assert [len(job.future.result(60).continuations[0].tokens) for job in jobs] == [3] * 5
    assert steps[:2] == [5, 5]
    assert worker.waiting == 0


def test_jobs_run_in_order_of_submission_and_between_the_tokens_of_samples(
    worker: Worker, held: threading.Event, steps: list[int]
) -> None:
    long, order = submitted(worker, LONG), []
    futures = [worker.submit(Job(lambda number=number: order.append((number, len(steps))))) for number in range(5)]
    held.set()
    for future in futures:
        future.result(60)
    assert [number for number, _ in order] == [0, 1, 2, 3, 4]
    assert [sampled for _, sampled in order] == [1, 2, 3, 4, 5]
    assert not long.future.done()
    short = submitted(worker)
    assert len(short.future.result(60).continuations[0].tokens) == 3
    assert not long.future.done()
    long.future.cancel()
    assert str(long.future.exception(60)) == CANCELLED


def test_samples_of_a_lost_client_are_dropped(worker: Worker, held: threading.Event, steps: list[int]) -> None:
    lost = threading.Event()
    jobs = [submitted(worker, LONG, has_client=lambda: not lost.is_set()) for _ in range(3)]
    held.set()
    submitted(worker).future.result(60)
    lost.set()
    assert {type(job.future.exception(60)) for job in jobs} == {DroppedError}
    assert len(steps) < 400
    assert len(submitted(worker).future.result(60).continuations) == 1


def test_prompts_are_scored(engine: Engine, worker: Worker, held: threading.Event) -> None:
    asked = [submitted(worker, scoring=PromptScoring(logprobs=True)) for _ in range(2)]
    plain = submitted(worker)
    held.set()
    scored = [job.future.result(60).prompt.logprobs for job in asked]
    assert all(len(each) == 2 for each in scored if each is not None)
    assert plain.future.result(60).prompt.logprobs is None


@pytest.mark.parametrize("error", [RequestError("no"), ZeroDivisionError("broken")])
def test_an_error_reaches_its_job_and_the_next_job_runs(worker: Worker, error: Exception) -> None:
    def fail() -> None:
        raise error

    failed = worker.submit(Job(fail))
    after = worker.submit(Job(lambda: "ran"))
    assert failed.exception(60) is error
    assert after.result(60) == "ran"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ZeroDivisionError("broken"), "broken"),
        (torch.OutOfMemoryError("CUDA"), "no memory left for this request: ask for fewer samples"),
    ],
)
def test_an_error_in_a_step_ends_what_was_in_it_and_sampling_goes_on(
    engine: Engine, worker: Worker, held: threading.Event, error: Exception, sentence: str
) -> None:
    def fail(*_args: object) -> None:
        raise error

    job = submitted(worker)
    hook = engine.model.model.get_input_embeddings().register_forward_pre_hook(fail)
    held.set()
    try:
        assert sentence in str(job.future.exception(60))
    finally:
        hook.remove()
    assert len(submitted(worker).future.result(60).continuations) == 1


def test_an_error_in_an_answer_reaches_its_requests(engine: Engine) -> None:
    def answer(_jobs: object) -> list[object]:
        raise ZeroDivisionError("broken")

    worker = Worker(engine.new_batch(), answer)
    assert isinstance(submitted(worker).future.exception(60), ZeroDivisionError)
    assert worker.submit(Job(lambda: "ran")).result(60) == "ran"
    worker.stop()


def test_a_cancelled_request_is_not_run(worker: Worker, held: threading.Event) -> None:
    first, second = submitted(worker), submitted(worker)
    assert first.future.cancel()
    held.set()
    assert second.future.result(60).continuations[0].tokens
    assert first.continuations[0].tokens == []
