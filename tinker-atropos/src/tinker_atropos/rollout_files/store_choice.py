"""Which store holds a run's rollout files, by the settings."""

from pathlib import Path

from tinker_atropos.errors import ConfigError
from tinker_atropos.rollout_files.rollout_folder import RolloutFolder
from tinker_atropos.rollout_files.rollout_store import RolloutStore, WritableStore
from tinker_atropos.settings import Settings


def open_store(url: str) -> WritableStore:
    """The bucket at `s3://BUCKET/FOLDER`; nothing is called yet. Only this loads its library. Raises ConfigError."""
    try:
        from tinker_atropos.rollout_files.object_store import ObjectStore
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"RL_ROLLOUTS_URL is {url!r}, and {error.name} is missing: pip install 'tinker-atropos[object-store]'"
        ) from None
    return ObjectStore(url)


def kept_rollouts(settings: Settings) -> RolloutStore:
    """What outlived a trainer, for readers. Raises ConfigError."""
    if settings.rollouts_url:
        return open_store(settings.rollouts_url)
    if settings.rollouts_dir:
        return RolloutFolder(Path(settings.rollouts_dir), limit_bytes=0)
    raise ConfigError("RL_ROLLOUTS_DIR or RL_ROLLOUTS_URL must say where the rollouts are, and neither is set")
