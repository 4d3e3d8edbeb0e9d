"""Checkpoints on disk: `<root>/<training run>/<kind>/<name>/`, addressed as `tinker://<training run>/<kind>/<name>`.

A checkpoint appears complete or not at all: it is written to a temporary folder, flushed to disk and renamed. Kinds:

    weights           a state to train on: LoRA weights and optimizer moments, bit for bit
    sampler_weights   LoRA weights to sample from
    external_weights  a PEFT folder in float32 for other programs, downloaded from signed URLs (downloads.py)
"""

import contextlib
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, get_args

import torch
from pydantic import BaseModel as Record
from pydantic import ConfigDict, ValidationError

from rl_contract.processes import DISK_FULL_ERRORS, NO_SPACE_STATUS
from tinker_service.model import checkpoint_files as files
from tinker_service.model.lora import LoraSpec
from tinker_service.model.training import Trainee
from tinker_service.service_errors import MissingError, RequestError

log = logging.getLogger(__name__)

Kind = Literal["weights", "sampler_weights", "external_weights"]
KINDS: tuple[Kind, ...] = get_args(Kind)

RECORD_FILE = "checkpoint.json"
RUN_FILE = "training_run.json"
FULL_SECONDS = 1.0
"""How often a write that found the disk full is tried again."""

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"
_PATH = re.compile(rf"tinker://(?P<run>{_PART})/(?P<kind>{'|'.join(KINDS)})/(?P<name>{_PART})")


class TrainingRunRecord(Record):
    """What remains of a training run when the process ends."""

    model_config = ConfigDict(frozen=True)

    training_run_id: str
    base_model: str
    lora_rank: int
    created_at: datetime
    user_metadata: dict[str, str] | None = None


class CheckpointRecord(Record):
    """A checkpoint's description, stored next to its weights."""

    model_config = ConfigDict(frozen=True)

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
                f"{path!r} is not a checkpoint path; it looks like tinker://RUN/weights/NAME "
                f"(or sampler_weights, external_weights), of letters, digits and _ . : -"
            )
        kind = next(kind for kind in KINDS if kind == match["kind"])
        return cls(match["run"], kind, match["name"])

    @classmethod
    def of(cls, run: str, kind: str, name: str) -> "Location":
        """Raises RequestError for parts that no path may have."""
        return cls.parse(f"tinker://{run}/{kind}/{name}")

    @property
    def path(self) -> str:
        return f"tinker://{self.training_run_id}/{self.kind}/{self.name}"


class CheckpointStore:
    """The folder of all training runs. `max_bytes` None: as much as the disk holds.

    `no_space`: why a write waits for room on the disk, while one does; its caller, and all that comes after it, wait.
    """

    def __init__(self, root: Path, max_bytes: int | None = None) -> None:
        self.no_space: str | None = None
        self._root = root
        self._max_bytes = max_bytes
        root.mkdir(parents=True, exist_ok=True)

    def save(
        self,
        location: Location,
        trainee: Trainee,
        base: files.BaseModel,
        *,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> None:
        """Write a checkpoint. Raises RequestError if it exists and `overwrite` is not set, or if there is no room."""
        folder = self._folder(location)
        if folder.exists() and not overwrite:
            raise RequestError(f"{location.path} exists; choose another name or pass overwrite=True", status=409)
        optimizer = trainee.optimizer if location.kind == "weights" else None
        self._check_room(location, trainee, with_optimizer=optimizer is not None)
        spec = trainee.adapter.spec
        record = CheckpointRecord(
            tinker_path=location.path,
            base_model=base.name,
            rank=spec.rank,
            train_attn=spec.train_attn,
            train_mlp=spec.train_mlp,
            train_unembed=spec.train_unembed,
            created_at=_now(),
            expires_at=_expiry(ttl_seconds),
            optimizer_step=optimizer.step if optimizer else None,
            user_metadata=user_metadata,
        )

        def write() -> None:
            with _whole(folder, location) as temporary:
                if location.kind == "external_weights":
                    files.write_adapter(temporary, trainee.adapter, base, torch.float32)
                    files.write_readme(temporary, trainee.adapter, base)
                else:
                    files.write_adapter(temporary, trainee.adapter, base)
                if optimizer:
                    files.write_optimizer(temporary, optimizer, list(trainee.adapter.parameters))
                (temporary / RECORD_FILE).write_text(record.model_dump_json(indent=1), encoding="utf-8")

        self._when_there_is_room(write)

    def load(self, path: str, device: torch.device, *, with_optimizer: bool, trainable: bool) -> Trainee:
        """Read a checkpoint. Raises MissingError if it does not exist (anymore)."""
        location = Location.parse(path)
        record, folder = self.record(location), self._folder(location)
        adapter = files.read_adapter(folder, record.spec, device, trainable=trainable)
        if not with_optimizer or record.optimizer_step is None:
            return Trainee(adapter)
        names = list(adapter.parameters)
        return Trainee(adapter, files.read_optimizer(folder, names, record.optimizer_step, device))

    def record(self, location: Location) -> CheckpointRecord:
        """A checkpoint's description. Raises MissingError if it does not exist (anymore)."""
        try:
            text = (self._folder(location) / RECORD_FILE).read_text(encoding="utf-8")
            record = CheckpointRecord.model_validate_json(text)
        except FileNotFoundError:
            raise MissingError(
                f"there is no checkpoint {location.path}; list_checkpoints shows those of a training run"
            ) from None
        except ValidationError:
            raise MissingError(f"{location.path} is damaged: its {RECORD_FILE} cannot be read; delete it") from None
        if record.expires_at and record.expires_at <= _now():
            raise MissingError(f"{location.path} expired at {record.expires_at:%Y-%m-%d %H:%M} UTC")
        return record

    def peft_files(self, location: Location) -> dict[str, Path]:
        """The files that clients may download, by name. Raises MissingError."""
        self.record(location)
        return {name: self._folder(location) / name for name in files.PEFT_FILES}

    def size_bytes(self, location: Location) -> int:
        return sum(entry.stat().st_size for entry in self._folder(location).iterdir())

    def total_bytes(self) -> int:
        """Size of everything in the folder, including what is being written."""
        total = 0
        for path in self._root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
                total += path.stat().st_size if path.is_file() else 0
        return total

    def delete(self, location: Location) -> None:
        self.record(location)
        files.remove(self._folder(location))

    def set_expiry(self, location: Location, ttl_seconds: int | None) -> None:
        record = self.record(location).model_copy(update={"expires_at": _expiry(ttl_seconds)})
        files.replace_text(self._folder(location) / RECORD_FILE, record.model_dump_json(indent=1))

    def checkpoints(self, training_run_id: str) -> list[CheckpointRecord]:
        """A run's checkpoints that have not expired, oldest first."""
        records = []
        for kind in KINDS:
            for folder in self._root.glob(f"{training_run_id}/{kind}/[!.]*"):
                with contextlib.suppress(MissingError):
                    records.append(self.record(Location(training_run_id, kind, folder.name)))
        return sorted(records, key=lambda record: record.created_at)

    def add_run(self, record: TrainingRunRecord) -> None:
        folder = self._root / record.training_run_id

        def write() -> None:
            folder.mkdir(exist_ok=True)
            files.replace_text(folder / RUN_FILE, record.model_dump_json(indent=1))

        self._when_there_is_room(write)

    def runs(self) -> list[TrainingRunRecord]:
        """All training runs, newest first."""
        records = [self.run(path.parent.name) for path in self._root.glob(f"*/{RUN_FILE}")]
        return sorted(records, key=lambda record: record.created_at, reverse=True)

    def run(self, training_run_id: str) -> TrainingRunRecord:
        """A training run's description. Raises MissingError."""
        path = self._root / training_run_id / RUN_FILE
        if not re.fullmatch(_PART, training_run_id) or not path.is_file():
            raise MissingError(f"there is no training run {training_run_id!r}; list_training_runs shows all")
        return TrainingRunRecord.model_validate_json(path.read_text(encoding="utf-8"))

    def sweep(self) -> None:
        """Remove what has expired, and what a killed process left half-written."""
        for hidden in self._root.glob("*/*/.*"):
            files.recover(hidden)
        for folder in self._root.glob("*/*/[!.]*"):
            if self._expired(folder):
                files.remove(folder)

    def _expired(self, folder: Path) -> bool:
        try:
            record = CheckpointRecord.model_validate_json((folder / RECORD_FILE).read_text(encoding="utf-8"))
        except (OSError, ValidationError):
            log.warning("%s is not a checkpoint: its %s cannot be read; it stays where it is", folder, RECORD_FILE)
            return False
        return record.expires_at is not None and record.expires_at <= _now()

    def _check_room(self, location: Location, trainee: Trainee, *, with_optimizer: bool) -> None:
        if self._max_bytes is None:
            return
        weights = files.bytes_of(iter(trainee.adapter.parameters.values()))
        needed = weights * (3 if with_optimizer else 1)
        if self.total_bytes() + needed > self._max_bytes:
            self.sweep()
        used = self.total_bytes()
        if used + needed > self._max_bytes:
            raise RequestError(
                f"{location.path} needs {_mib(needed)} and the service's checkpoints hold {_mib(used)} of the "
                f"{_mib(self._max_bytes)} that --max-disk allows: delete checkpoints, or save them with ttl_seconds",
                NO_SPACE_STATUS,
            )

    def _when_there_is_room(self, write: Callable[[], None]) -> None:
        while True:
            try:
                write()
            except OSError as error:
                if error.errno not in DISK_FULL_ERRORS:
                    raise
            else:
                self.no_space = None
                return
            usage = shutil.disk_usage(self._root)
            free = f"{usage.free // 10**6} of {usage.total // 10**6} MB free"
            if self.no_space is None:
                log.warning("no room is left in %s (%s): what is to be saved waits for it", self._root, free)
            self.no_space = f"no room is left for checkpoints in {self._root} ({free}): make some, saving waits for it"
            time.sleep(FULL_SECONDS)

    def _folder(self, location: Location) -> Path:
        return self._root / location.training_run_id / location.kind / location.name


@contextlib.contextmanager
def _whole(folder: Path, location: Location) -> Iterator[Path]:
    """A folder to write to, moved into place only after all of it was written. Raises RequestError, and OSError if the
    disk is full.
    """
    temporary = None
    try:
        temporary = files.new_hidden_folder(folder)
        yield temporary
        files.move_into_place(temporary, folder)
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise
        log.exception("saving %s failed", location.path)
        raise RequestError(
            f"{location.path} was not saved: {error.strerror} in the service's data folder: save again",
            NO_SPACE_STATUS,
        ) from None
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary)


def _mib(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"


def _expiry(ttl_seconds: int | None) -> datetime | None:
    return None if ttl_seconds is None else _now() + timedelta(seconds=ttl_seconds)


def _now() -> datetime:
    return datetime.now(UTC)
