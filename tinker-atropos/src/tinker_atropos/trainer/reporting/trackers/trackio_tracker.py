"""The run at Trackio: what it is called there, whether it can be recorded, and where.

Trackio is a package that people install beside this one. It writes into a folder of the machine (TRACKIO_DIR, by
default `trackio` in Hugging Face's cache); only its own variables TRACKIO_SPACE_ID and TRACKIO_SERVER_URL send a run
elsewhere.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.trackers.tracker import described
from tinker_atropos.trainer.reporting.trackers.tracker_process import TrackerProcess, Way

PROGRAM = "tinker_atropos.trainer.reporting.trackers.trackio_program"
PROJECT = "rl-operator"
"""Of runs whose config names none."""

REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
KEYS_OF_OTHERS = ("TINKER_API_KEY", "WANDB_API_KEY")


@dataclass(frozen=True, slots=True)
class TrackioSettings:
    """Arguments of trackio.init; `uid` tells runs of one name apart."""

    project: str
    name: str
    uid: str
    group: str | None
    config: Mapping[str, Any]


def trackio_settings(settings: Settings, config: RunConfig) -> TrackioSettings:
    return TrackioSettings(
        project=config.tinker.wandb_project or PROJECT,
        name=config.tinker.wandb_run_name or settings.run_name,
        uid=settings.run_uid,
        group=config.tinker.wandb_group,
        config=described(settings, config),
    )


def unusable(environ: Mapping[str, str], *, installed: bool) -> str | None:
    """Why nothing can be recorded, and what to do; None if it can."""
    folder = environ.get("TRACKIO_DIR")
    if not installed:
        return (
            f"the package trackio is not installed in {sys.prefix}; to use it: {sys.executable} -m pip install "
            "'trackio>=0.43,<1'"
        )
    if folder and not Path(folder).is_absolute():
        return f"TRACKIO_DIR is {folder!r}; it must be an absolute path, since the trainer works in a folder of its own"
    return None


def is_installed() -> bool:
    return find_spec("trackio") is not None


def trackio_tracker(
    settings: TrackioSettings,
    environ: Mapping[str, str],
    close_seconds: float,
    *,
    why_not: str | None = None,
    python: str = sys.executable,
) -> TrackerProcess:
    """`why_not` is why nothing can be recorded (`unusable`). `python` has trackio, and finds this package.

    `/status` shows `state` (starting, running, finished, failed or interrupted), `project`, `run` (its name there) and
    `show`, the command or the page that shows it.
    """
    offline = {} if any(environ.get(name) for name in REMOTE) else {"HF_HUB_OFFLINE": "1"}
    env_vars = {name: value for name, value in environ.items() if name not in KEYS_OF_OTHERS} | offline
    way = Way(PROGRAM, asdict(settings), env_vars, "its process ended", python=python)
    wire = {"project": settings.project, "run": settings.name, "show": None}
    return TrackerProcess("Trackio", wire, () if why_not else (way,), close_seconds, why_not=why_not)
