"""Sampling without a worker: requests through one batch, step by step."""

from collections.abc import Sequence

from tinker_service.model.engine import SAMPLING_BYTES
from tinker_service.model.lora import LoraAdapter, LoraModel
from tinker_service.model.sampling.sample_jobs import Continuation, Decode, SampleJob, SamplingRequest
from tinker_service.model.sampling.sampling_batch import SamplingBatch


def new_batch(model: LoraModel, decode: Decode = str, memory: int = SAMPLING_BYTES) -> SamplingBatch:
    return SamplingBatch(model, decode, memory)


def sampled(
    model: LoraModel, requests: Sequence[SamplingRequest], adapter: LoraAdapter | None = None, decode: Decode = str
) -> list[list[Continuation]]:
    """One list of continuations per request, in order."""
    return finished(new_batch(model, decode), [SampleJob(adapter, request) for request in requests])


def finished(batch: SamplingBatch, jobs: Sequence[SampleJob]) -> list[list[Continuation]]:
    """Add the jobs to a batch and run it to its end."""
    for job in jobs:
        batch.add(job)
    while batch.jobs:
        batch.step()
    return [job.continuations for job in jobs]
