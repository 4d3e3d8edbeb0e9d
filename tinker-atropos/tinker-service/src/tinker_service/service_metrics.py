"""What `/metrics` shows: requests, tokens, how well sampling requests share batches, and what is stored."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

from tinker_service.checkpoint_store import CheckpointStore
from tinker_service.model.model_worker import Worker
from tinker_service.model.registry import Registry
from tinker_service.model.sampling.sample_jobs import SampleJob
from tinker_service.model.sampling.sampling_batch import SamplingBatch
from tinker_service.model.training import TrainingDatum

_TOKEN_KINDS = ("prompt", "sampled", "forward", "trained")
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The service's own registry: one process may hold several services."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tinker_service_requests", "HTTP requests answered.", ["operation", "status"], registry=self.registry
        )
        self._tokens = Counter(
            "tinker_service_tokens",
            "Tokens that the model worked on: read as prompts, sampled, passed forward only, or trained.",
            ["kind"],
            registry=self.registry,
        )
        for kind in _TOKEN_KINDS:
            self._tokens.labels(kind)  # shown as 0 before there are any
        self._batch = Histogram(
            "tinker_service_batch_sequences",
            "Sequences that get a token together, at each step of sampling.",
            buckets=_BATCH_SIZES,
            registry=self.registry,
        )

    def observe_kept(self, worker: Worker, batch: SamplingBatch, registry: Registry, store: CheckpointStore) -> None:
        """Show what the service holds, measured when scraped."""
        gauges = {
            "queue_jobs": ("Jobs and prompts that wait for the model.", lambda: worker.waiting),
            "running_sequences": ("Sequences that are being sampled.", lambda: batch.running),
            "cache_bytes": ("Keys and values of the sequences that are being sampled.", lambda: batch.cache_bytes),
            "sessions": ("Sessions of clients.", lambda: len(registry.sessions)),
            "models": ("Models in training.", lambda: len(registry.model_ids)),
            "samplers": ("Samplers in memory.", lambda: len(registry.sampler_ids)),
            "checkpoint_bytes": ("Size of the data folder.", store.total_bytes),
        }
        for name, (help_text, measure) in gauges.items():
            Gauge(f"tinker_service_{name}", help_text, registry=self.registry).set_function(measure)

    def count_request(self, scope: Scope, status: int) -> None:
        endpoint = scope.get("endpoint")
        self._requests.labels(getattr(endpoint, "__name__", "none"), str(status)).inc()

    def count_step(self, sequences: int) -> None:
        """A step of sampling, after which so many sequences go on."""
        if sequences:
            self._batch.observe(sequences)

    def count_samples(self, jobs: Sequence[SampleJob]) -> None:
        rows = [row for job in jobs for row in job.continuations]
        self._tokens.labels("prompt").inc(sum(len(job.request.prompt) for job in jobs))
        self._tokens.labels("sampled").inc(sum(len(row.tokens) for row in rows))

    def count_training(self, data: Sequence[TrainingDatum], *, backward: bool) -> None:
        self._tokens.labels("trained" if backward else "forward").inc(sum(len(datum.tokens) for datum in data))

    def render(self) -> bytes:
        return generate_latest(self.registry)
