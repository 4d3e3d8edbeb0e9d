"""What an environment's process is to serve, and how long it waits for it."""

from dataclasses import dataclass

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment
from tinker_atropos.settings import Settings


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The longest waits, in seconds."""

    trainer: float = 600.0
    first_group: float = 1800.0
    next_item: float = 300.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which environment, for which run."""

    settings: Settings
    run: RunConfig
    located: LocatedEnvironment
    deadlines: Deadlines
