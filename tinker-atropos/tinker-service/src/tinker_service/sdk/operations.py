"""The service's operations on parsed requests. Each either answers immediately or gives the worker a job."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tinker import types

from tinker_service.checkpoint_store import CheckpointStore, Kind, Location, TrainingRunRecord
from tinker_service.model.adamw import AdamSettings
from tinker_service.model.engine import Engine
from tinker_service.model.lora import LoraSpec
from tinker_service.model.losses import LOSSES
from tinker_service.model.model_worker import Job, Worker
from tinker_service.model.recordings import RecordedSequence, with_recorded
from tinker_service.model.registry import Registry, ServedSampler, model_id_of, session_of
from tinker_service.model.sampling.sample_jobs import SampleAnswer, SampleJob
from tinker_service.model.training import (
    LossOutput,
    Trainee,
    TrainingDatum,
    forward_backward,
    optim_step,
)
from tinker_service.sdk.sdk_messages import (
    ForwardBackwardRequest,
    check_forward_backward,
    numbers,
    parse_sampling,
    parse_scoring,
)
from tinker_service.service_errors import MissingError, RequestError
from tinker_service.service_metrics import Metrics

MAX_RANK = 512
MIN_TTL_SECONDS = 3_600  # Tinker's
DEFAULT_LORA = types.LoraConfig(rank=32)
_SAVE_TYPES: dict[Kind, str] = {
    "weights": "save_weights",
    "sampler_weights": "save_weights_for_sampler",
    "external_weights": "save_weights_external",
}


@dataclass(frozen=True, slots=True)
class Service:
    """One engine, its worker, and everything that clients can refer to."""

    engine: Engine
    worker: Worker
    store: CheckpointStore
    registry: Registry
    metrics: Metrics

    def submit(self, run: Callable[[], Any]) -> Future[Any]:
        return self.worker.submit(Job(run))

    def session(self, session_id: str) -> dict[str, Any]:
        """What a session holds."""
        if session_id not in self.registry.sessions:
            raise MissingError(f"there is no session {session_id!r} (any more); list_sessions shows those that live")
        return {
            "training_run_ids": [name for name in self.registry.model_ids if session_of(name) == session_id],
            "sampler_ids": [name for name in self.registry.sampler_ids if session_of(name) == session_id],
        }

    def create_model(self, request: types.CreateModelRequest) -> Future[Any]:
        self._check_base_model(request.base_model)
        _check_optimizer(request.optimizer_config.type)
        spec = _lora_spec(request.lora_config or DEFAULT_LORA)
        model_id = self._new_model_id(request.session_id, request.model_seq_id)

        def run() -> dict[str, Any]:
            self._register(model_id, Trainee(self.engine.model.new_adapter(spec)), request.user_metadata)
            return {"type": "create_model", "model_id": model_id}

        return self.submit(run)

    def model_info(self, model_id: str) -> dict[str, Any]:
        trainee = self.registry.model(model_id)
        # The folder replaces the name where the SDK uses it to load a tokenizer: `bundled` is not on the Hub.
        folder = str(self.engine.base.folder)
        return {
            "type": "get_info",
            "model_id": model_id,
            "model_name": self.engine.base.name,
            "is_lora": True,
            "lora_rank": trainee.adapter.spec.rank,
            "model_data": {"arch": self.engine.architecture, "model_name": folder, "tokenizer_id": folder},
        }

    def load_weights(self, request: types.LoadWeightsRequest) -> Future[Any]:
        """Load into a model, or into a new one named by `session_id` and `model_seq_id`."""
        if request.model_id is not None:
            model_id = request.model_id
            self.registry.model(model_id)
        elif request.session_id is not None and request.model_seq_id is not None:
            model_id = self._new_model_id(request.session_id, request.model_seq_id)
        else:
            raise RequestError("load_weights needs model_id, or session_id and model_seq_id")
        if request.optimizer_config:
            _check_optimizer(request.optimizer_config.type)
        self._check_checkpoint(request.path, "weights")

        def run() -> dict[str, Any]:
            trainee = self.store.load(
                request.path, self.engine.device, with_optimizer=request.optimizer, trainable=True
            )
            self._register(model_id, trainee, request.user_metadata)
            return {"type": "load_weights", "path": request.path, "model_id": model_id}

        if request.model_id is not None:
            self.registry.check_order(model_id, request.seq_id)
        return self.submit(run)

    def forward_backward(self, request: ForwardBackwardRequest) -> Future[Any]:
        check_forward_backward(request, self.engine.vocabulary, self.engine.context)
        data = self._recorded_data(request) if LOSSES[request.loss_name].recorded else request.data

        def run(trainee: Trainee) -> LossOutput:
            output = forward_backward(
                self.engine.model,
                trainee,
                data,
                loss_name=request.loss_name,
                loss_config=request.loss_config,
                backward=not request.forward_only,
            )
            self.metrics.count_training(request.data, backward=not request.forward_only)
            return output

        return self._submit_to(request.model_id, request.seq_id, run)

    def optim_step(self, request: types.OptimStepRequest) -> Future[Any]:
        params = request.optim_params
        if not isinstance(params, types.AdamParams):
            raise RequestError(f"optimizer {params.type!r} is not supported by this service; pass AdamParams")
        settings = AdamSettings(**params.model_dump())
        return self._submit_to(
            request.model_id, request.seq_id, lambda trainee: {"metrics": numbers(optim_step(trainee, settings))}
        )

    def save_weights(self, request: types.SaveWeightsRequest) -> Future[Any]:
        return self._save(request, "weights", overwrite=request.overwrite, user_metadata=request.user_metadata)

    def save_weights_for_sampler(self, request: types.SaveWeightsForSamplerRequest) -> Future[Any]:
        """A named checkpoint or, without a path, a sampler that exists only in memory."""
        if request.kind != "snapshot":
            raise RequestError(f"kind {request.kind!r} is not supported by this service; use 'snapshot'")
        if request.path is None:
            return self._submit_to(request.model_id, request.seq_id, lambda trainee: self._snapshot(request, trainee))
        return self._save(request, "sampler_weights", user_metadata=request.user_metadata)

    def save_weights_external(self, request: types.SaveWeightsExternalRequest) -> Future[Any]:
        """A PEFT folder for other programs."""
        if request.age_encryption_recipients:
            raise RequestError("age_encryption_recipients is not supported by this service; encrypt after the download")
        return self._save(request, "external_weights")

    def _save(
        self,
        request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest | types.SaveWeightsExternalRequest,
        kind: Kind,
        *,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Future[Any]:
        location, ttl_seconds = _location(request.model_id, kind, request.path), request.ttl_seconds
        check_ttl(ttl_seconds)

        def run(trainee: Trainee) -> dict[str, Any]:
            self.store.save(
                location,
                trainee,
                self.engine.base,
                ttl_seconds=ttl_seconds,
                overwrite=overwrite,
                user_metadata=user_metadata,
            )
            return {"type": _SAVE_TYPES[kind], "path": location.path}

        return self._submit_to(request.model_id, request.seq_id, run)

    def create_sampling_session(self, request: types.CreateSamplingSessionRequest) -> Future[Any]:
        sampler_id = _sampler_id(request.session_id, request.sampling_session_seq_id)
        path = request.model_path
        if path is not None:
            self._check_checkpoint(path)
        elif request.base_model is not None:
            self._check_base_model(request.base_model)
        else:
            raise RequestError("create_sampling_session needs model_path or base_model")

        def run() -> dict[str, Any]:
            adapter = None
            if path is not None:
                adapter = self.store.load(path, self.engine.device, with_optimizer=False, trainable=False).adapter
            self.registry.add_sampler(ServedSampler(sampler_id, request.session_id, adapter, path))
            return {"type": "create_sampling_session", "sampling_session_id": sampler_id}

        return self.submit(run)

    def sample(self, request: types.SampleRequest, sequence_ids: Sequence[str]) -> Future[Any]:
        """`sequence_ids` name the samples; what they were drawn with is recorded under them if the request says so."""
        if request.sampling_session_id is None:
            raise RequestError("asample needs sampling_session_id: create a sampling client first")
        sampler = self.registry.sampler(request.sampling_session_id)
        parsed = parse_sampling(request, self.engine.vocabulary, self.engine.context, self.engine.stop_tokens)
        scoring = parse_scoring(request, self.engine.vocabulary)
        self.registry.touch_living(sampler.session_id)

        def has_client() -> bool:
            return self.registry.has_client(sampler.session_id, time.monotonic())

        job = SampleJob(sampler.adapter, parsed, scoring, has_client)
        if request.record_stability_info:
            # Called before any client learns the result: whoever has a sequence's id can train on it.
            job.future.add_done_callback(
                lambda done: self._record(done, sequence_ids, sampler.session_id, parsed.prompt)
            )
        return self.worker.submit(job)

    def _record(
        self, done: Future[SampleAnswer], sequence_ids: Sequence[str], session_id: str, prompt: Sequence[int]
    ) -> None:
        if not done.cancelled() and done.exception() is None:
            self.registry.recordings.record(sequence_ids, session_id, prompt, done.result().continuations)

    def _recorded_data(self, request: ForwardBackwardRequest) -> list[TrainingDatum]:
        """The request's data with what this service recorded when it sampled them."""
        session_id = session_of(request.model_id)

        def find(sequence_id: str) -> RecordedSequence:
            return self.registry.recordings.use(sequence_id, session_id)

        pairs = zip(request.data, request.provenance, strict=True)
        return [with_recorded(index, datum, provenance, find) for index, (datum, provenance) in enumerate(pairs)]

    def _snapshot(self, request: types.SaveWeightsForSamplerRequest, trainee: Trainee) -> dict[str, Any]:
        if request.sampling_session_seq_id is None:
            raise RequestError("save_weights_for_sampler needs path or sampling_session_seq_id")
        session_id = session_of(request.model_id)
        sampler_id = _sampler_id(session_id, request.sampling_session_seq_id)
        self.registry.add_sampler(ServedSampler(sampler_id, session_id, trainee.adapter.snapshot()))
        return {"type": "save_weights_for_sampler", "sampling_session_id": sampler_id}

    def _register(self, model_id: str, trainee: Trainee, user_metadata: dict[str, Any] | None) -> None:
        """Called on the worker's thread: the model is registered before its creation is reported."""
        self.registry.touch(session_of(model_id))
        self.registry.add_model(model_id, trainee)
        self.store.add_run(
            TrainingRunRecord(
                training_run_id=model_id,
                base_model=self.engine.base.name,
                lora_rank=trainee.adapter.spec.rank,
                created_at=datetime.now(UTC),
                user_metadata={key: str(value) for key, value in user_metadata.items()} if user_metadata else None,
            )
        )

    def _submit_to(self, model_id: str, seq_id: int | None, run: Callable[[Trainee], Any]) -> Future[Any]:
        """A job on a model in training, looked up when the job runs: an earlier job may load other weights."""
        self.registry.model(model_id)
        self.registry.check_order(model_id, seq_id)
        return self.submit(lambda: run(self.registry.model(model_id)))

    def _new_model_id(self, session_id: str, model_seq_id: int) -> str:
        """Raises RequestError for an id that cannot be a folder name, and for a model that exists."""
        model_id = model_id_of(session_id, model_seq_id)
        if self.registry.has_model(model_id):
            raise RequestError(f"model {model_id!r} exists: create another training client")
        return Location.of(model_id, "weights", "new").training_run_id

    def _check_base_model(self, base_model: str) -> None:
        if not self.engine.is_named(base_model):
            raise MissingError(
                f"base model {base_model!r} is not served here; this service has {self.engine.base.name!r} "
                f"(name that one, in a run by openai[0].model_name; or start the service with another --model)"
            )

    def _check_checkpoint(self, path: str, kind: Kind | None = None) -> None:
        location = Location.parse(path)
        if kind is not None and location.kind != kind:
            raise RequestError(f"{path} cannot be trained on: it holds no state; use a path with /{kind}/")
        record = self.store.record(location)
        if not self.engine.is_named(record.base_model):
            raise RequestError(
                f"{path} belongs to base model {record.base_model!r}; this service has {self.engine.base.name!r}"
            )


def _sampler_id(session_id: str, seq_id: int) -> str:
    return f"{session_id}:sample:{seq_id}"


def _location(model_id: str, kind: Kind, name: str | None) -> Location:
    if not name:
        raise RequestError("the checkpoint needs a name (path)")
    return Location.of(model_id, kind, name)


def _lora_spec(config: types.LoraConfig) -> LoraSpec:
    if not 1 <= config.rank <= MAX_RANK:
        raise RequestError(f"lora_config.rank is {config.rank}; it must be 1 to {MAX_RANK}")
    return LoraSpec(**config.model_dump())


def _check_optimizer(name: str) -> None:
    if name != "adamw":
        raise RequestError(f"optimizer {name!r} is not supported by this service; use 'adamw'")


def check_ttl(ttl_seconds: int | None) -> None:
    if ttl_seconds is not None and ttl_seconds < MIN_TTL_SECONDS:
        raise RequestError(f"ttl_seconds is {ttl_seconds}; it must be at least {MIN_TTL_SECONDS}, or None (forever)")
