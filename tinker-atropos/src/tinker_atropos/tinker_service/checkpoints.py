"""Checkpoints on disk: `<root>/<training run>/<kind>/<name>/`, addressed as `tinker://<training run>/<kind>/<name>`.

A checkpoint appears whole or not at all: it is written beside its place, flushed to disk and renamed. Its folder is
also an adapter folder of PEFT.
"""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file

from tinker_atropos.tinker_service.adamw import AdamState
from tinker_atropos.tinker_service.errors import NotFoundError, RequestError
from tinker_atropos.tinker_service.lora import ALPHA, Adapter, LoraSpec
from tinker_atropos.tinker_service.training import Trainee

Kind = Literal["weights", "sampler_weights"]
KINDS: tuple[Kind, ...] = ("weights", "sampler_weights")

RECORD_FILE = "checkpoint.json"
RUN_FILE = "training_run.json"
ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG_FILE = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"
_PATH = re.compile(rf"tinker://(?P<run>{_PART})/(?P<kind>weights|sampler_weights)/(?P<name>{_PART})")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class TrainingRunRecord(_Record):
    """What stays of a training run when the process ends."""

    training_run_id: str
    base_model: str
    lora_rank: int
    created_at: datetime
    user_metadata: dict[str, str] | None = None


class CheckpointRecord(_Record):
    """A checkpoint's description, stored beside its weights."""

    tinker_path: str
    base_model: str
    rank: int
    train_attn: bool
    train_mlp: bool
    train_unembed: bool
    created_at: datetime
    expires_at: datetime | None = None
    optimizer_step: int | None = None
    user_metadata: dict[str, str] | None = None

    @property
    def spec(self) -> LoraSpec:
        return LoraSpec(
            rank=self.rank, train_attn=self.train_attn, train_mlp=self.train_mlp, train_unembed=self.train_unembed
        )


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed `tinker://` path."""

    training_run_id: str
    kind: Kind
    name: str

    @classmethod
    def parse(cls, path: str) -> "Location":
        match = _PATH.fullmatch(path)
        if match is None:
            raise RequestError(
                f"{path!r} is not a checkpoint path; it looks like tinker://RUN/weights/NAME or "
                f"tinker://RUN/sampler_weights/NAME, of letters, digits and _ . : -"
            )
        kind: Kind = "weights" if match["kind"] == "weights" else "sampler_weights"
        return cls(match["run"], kind, match["name"])

    @property
    def path(self) -> str:
        return f"tinker://{self.training_run_id}/{self.kind}/{self.name}"


class CheckpointStore:
    """The folder of all training runs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def save(
        self,
        location: Location,
        trainee: Trainee,
        base_model: str,
        *,
        with_optimizer: bool,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> None:
        """Write a checkpoint. Raises RequestError when it exists and `overwrite` is not set."""
        folder = self._folder(location)
        if folder.exists() and not overwrite:
            raise RequestError(f"{location.path} exists; choose another name or pass overwrite=True", status=409)
        spec = trainee.adapter.spec
        optimizer = trainee.optimizer if with_optimizer else None
        record = CheckpointRecord(
            tinker_path=location.path,
            base_model=base_model,
            rank=spec.rank,
            train_attn=spec.train_attn,
            train_mlp=spec.train_mlp,
            train_unembed=spec.train_unembed,
            created_at=_now(),
            expires_at=_expiry(ttl_seconds),
            optimizer_step=optimizer.step if optimizer else None,
            user_metadata=user_metadata,
        )
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
        temporary.mkdir(parents=True)
        _write_adapter(temporary, trainee.adapter, base_model)
        if optimizer:
            _write_optimizer(temporary, optimizer, list(trainee.adapter.parameters))
        (temporary / RECORD_FILE).write_text(record.model_dump_json(indent=1), encoding="utf-8")
        _flush(temporary)
        _move_into_place(temporary, folder)

    def load(self, path: str, device: torch.device, *, with_optimizer: bool, trainable: bool) -> Trainee:
        """Read a checkpoint. Raises NotFoundError when there is none (any more)."""
        location = Location.parse(path)
        record = self.record(location)
        folder = self._folder(location)
        tensors = load_file(folder / ADAPTER_FILE, device=str(device))
        parameters = {name.removeprefix(_PEFT_PREFIX): tensor for name, tensor in tensors.items()}
        adapter = Adapter.from_parameters(record.spec, parameters)
        for parameter in parameters.values():
            parameter.requires_grad_(trainable)
        if not with_optimizer or record.optimizer_step is None:
            return Trainee(adapter)
        moments = load_file(folder / OPTIMIZER_FILE, device=str(device))
        first, second = ([moments[f"{moment}.{name}"] for name in adapter.parameters] for moment in _MOMENTS)
        return Trainee(adapter, AdamState(first, second, record.optimizer_step))

    def record(self, location: Location) -> CheckpointRecord:
        """A checkpoint's description. Raises NotFoundError when there is none (any more)."""
        try:
            text = (self._folder(location) / RECORD_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no checkpoint {location.path}; list_checkpoints shows those of a training run"
            ) from None
        record = CheckpointRecord.model_validate_json(text)
        if record.expires_at and record.expires_at <= _now():
            raise NotFoundError(f"{location.path} expired at {record.expires_at:%Y-%m-%d %H:%M} UTC")
        return record

    def size_bytes(self, location: Location) -> int:
        return sum(entry.stat().st_size for entry in self._folder(location).iterdir())

    def delete(self, location: Location) -> None:
        self.record(location)
        shutil.rmtree(self._folder(location))

    def set_expiry(self, location: Location, ttl_seconds: int | None) -> None:
        record = self.record(location).model_copy(update={"expires_at": _expiry(ttl_seconds)})
        _replace_text(self._folder(location) / RECORD_FILE, record.model_dump_json(indent=1))

    def checkpoints(self, training_run_id: str) -> list[CheckpointRecord]:
        """A run's checkpoints that have not expired, oldest first."""
        records = []
        for kind in KINDS:
            for folder in self._root.glob(f"{training_run_id}/{kind}/[!.]*"):
                with contextlib.suppress(NotFoundError):
                    records.append(self.record(Location(training_run_id, kind, folder.name)))
        return sorted(records, key=lambda record: record.created_at)

    def add_run(self, record: TrainingRunRecord) -> None:
        folder = self._root / record.training_run_id
        folder.mkdir(exist_ok=True)
        _replace_text(folder / RUN_FILE, record.model_dump_json(indent=1))

    def runs(self) -> list[TrainingRunRecord]:
        """All training runs, newest first."""
        records = [
            TrainingRunRecord.model_validate_json(path.read_text(encoding="utf-8"))
            for path in self._root.glob(f"*/{RUN_FILE}")
        ]
        return sorted(records, key=lambda record: record.created_at, reverse=True)

    def run(self, training_run_id: str) -> TrainingRunRecord:
        for record in self.runs():
            if record.training_run_id == training_run_id:
                return record
        raise NotFoundError(f"there is no training run {training_run_id!r}; list_training_runs shows all")

    def sweep(self) -> None:
        """Remove what expired, and what a killed process left half written."""
        for folder in self._root.glob("*/*/*"):
            if folder.name.startswith(".") or self._expired(folder):
                shutil.rmtree(folder)

    def _expired(self, folder: Path) -> bool:
        record = CheckpointRecord.model_validate_json((folder / RECORD_FILE).read_text(encoding="utf-8"))
        return record.expires_at is not None and record.expires_at <= _now()

    def _folder(self, location: Location) -> Path:
        return self._root / location.training_run_id / location.kind / location.name


_PEFT_PREFIX = "base_model.model."
_MOMENTS = ("first", "second")


def _write_adapter(folder: Path, adapter: Adapter, base_model: str) -> None:
    tensors = {f"{_PEFT_PREFIX}{name}": tensor.detach().contiguous() for name, tensor in adapter.parameters.items()}
    save_file(tensors, folder / ADAPTER_FILE)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.spec.rank,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rsplit(".", 1)[-1] for name in adapter.weights}),
    }
    (folder / ADAPTER_CONFIG_FILE).write_text(json.dumps(config, indent=1), encoding="utf-8")


def _write_optimizer(folder: Path, state: AdamState, names: Sequence[str]) -> None:
    moments = zip(_MOMENTS, (state.first, state.second), strict=True)
    tensors = {
        f"{moment}.{name}": tensor for moment, values in moments for name, tensor in zip(names, values, strict=True)
    }
    save_file(tensors, folder / OPTIMIZER_FILE)


def _move_into_place(temporary: Path, folder: Path) -> None:
    """Rename; what stood there before is gone only after the new one stands there."""
    if folder.exists():
        old = folder.with_name(f"{temporary.name}.old")
        folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old)
    else:
        temporary.rename(folder)
    _sync(folder.parent)


def _flush(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    temporary.write_text(text, encoding="utf-8")
    _sync(temporary)
    temporary.rename(path)


def _expiry(ttl_seconds: int | None) -> datetime | None:
    return None if ttl_seconds is None else _now() + timedelta(seconds=ttl_seconds)


def _now() -> datetime:
    return datetime.now(UTC)
