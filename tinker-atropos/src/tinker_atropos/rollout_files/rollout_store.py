"""Where rollout files are, as their readers and their mirror see it, and which store that is by the settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.bounded_folder import BoundedFolder
from tinker_atropos.settings import Settings


class RolloutStore(Protocol):
    """Files by name. Every method may raise OSError with a sentence, and blocks: it is called from a thread."""

    def names(self) -> Mapping[str, int]:
        """The files, with their sizes in bytes."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError if there is no such file."""
        ...


class WritableStore(RolloutStore, Protocol):
    """A store that outlives the trainer's own folder."""

    def put(self, name: str, content: bytes) -> None: ...

    def delete(self, name: str) -> None: ...


class RolloutMirror(WritableStore, Protocol):
    """All files of a run: those of the trainer's own folder are copied to a store that outlives it."""

    @property
    def earlier(self) -> Mapping[str, int] | None:
        """The files that only the store has, which earlier attempts put there, with their sizes in bytes. None: not
        known yet.
        """
        ...

    def close(self, seconds: float) -> None:
        """Do what was asked for and still waits, for at most so long."""
        ...


def open_store(url: str) -> WritableStore:
    """The bucket at `s3://BUCKET/FOLDER`; nothing is called yet. Only this loads its library. Raises ConfigError."""
    try:
        from tinker_atropos.rollout_files.object_store import BucketStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"RL_ROLLOUTS_URL is {url!r}, and {error.name} is missing: pip install 'tinker-atropos[object-store]'"
        ) from None
    return BucketStore(url)


def kept_rollouts(settings: Settings) -> RolloutStore:
    """What outlived a trainer, for readers. Raises ConfigError."""
    if settings.rollouts_url:
        return open_store(settings.rollouts_url)
    if settings.rollouts_dir:
        return BoundedFolder(Path(settings.rollouts_dir), limit_bytes=0)
    raise ConfigError("RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL must say where the rollouts are, and neither is set")
