"""The run's one W&B run: what it is called, and the ways to record it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rl_contract.env_vars import TINKER_API_KEY, WANDB_API_KEY, WANDB_MODE, WANDB_NOTES
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.trackers.tracker_process import TrackerProcess, Way

PROGRAM = "tinker_atropos.trainer.reporting.trackers.wandb_program"

CONNECT_SHARE = 0.3
"""Share of the closing time that a server has to answer if it has not yet; then the run is recorded offline."""

FINISH_SHARE = 0.7
"""Share of the closing time that W&B has to send the rest; what is left then stays on disk."""


@dataclass(frozen=True, slots=True)
class WandbArguments:
    """Arguments of wandb.init. None leaves the choice to W&B and its variables (WANDB_ENTITY, WANDB_TAGS, …)."""

    id: str
    project: str | None
    group: str | None
    name: str | None
    notes: str | None
    config: Mapping[str, Any]


def enabled(environ: Mapping[str, str]) -> bool:
    """W&B is used only if it is configured: with a key, or for offline files."""
    mode = environ.get(WANDB_MODE, "")
    return mode == "offline" or (bool(environ.get(WANDB_API_KEY)) and mode != "disabled")


def wandb_settings(settings: Settings, config: RunConfig, environ: Mapping[str, str]) -> WandbArguments | None:
    """What W&B shows of the run. None: W&B is not used."""
    if not enabled(environ):
        return None
    notes = [environ.get(WANDB_NOTES), settings.start_from and f"Started from the weights {settings.start_from}"]
    return WandbArguments(
        id=settings.wandb_run_id or f"{settings.run_namespace}-{settings.run_name}",
        project=config.tinker.wandb_project,
        group=config.tinker.wandb_group,
        name=config.tinker.wandb_run_name or settings.run_name,
        notes="\n".join(filter(None, notes)) or None,
        config=_described(settings, config),
    )


def wandb_tracker(
    settings: WandbArguments | None,
    environ: Mapping[str, str],
    close_seconds: float,
    *,
    connect_share: float = CONNECT_SHARE,
    finish_share: float = FINISH_SHARE,
) -> TrackerProcess:
    """Settings None: disabled. The shares are of `close_seconds`.

    `/status` shows `state` (disabled, starting, running, finished, failed, or offline with the command to send it),
    `url` and `runId`.
    """
    return TrackerProcess(
        "W&B",
        {"url": None, "runId": settings.id if settings else None},
        _ways(settings, environ, finish_share * close_seconds) if settings else (),
        close_seconds,
        connect_share * close_seconds,
    )


def _ways(settings: WandbArguments, environ: Mapping[str, str], finish_seconds: float) -> list[Way]:
    """At the server, unless that is not wanted; else on disk."""
    quiet = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    env_vars = {name: value for name, value in environ.items() if name != TINKER_API_KEY} | quiet
    arguments = asdict(settings) | {"finish_seconds": finish_seconds}
    online = Way(PROGRAM, arguments | {"mode": "online"}, env_vars, "its server did not answer", connects=True)
    offline = Way(PROGRAM, arguments | {"mode": "offline"}, env_vars, "its process ended")
    return [offline] if environ.get(WANDB_MODE) == "offline" else [online, offline]


def _described(settings: Settings, config: RunConfig) -> dict[str, Any]:
    """The run's config, where it runs, and the weights that it started from."""
    place = {"name": settings.run_name, "namespace": settings.run_namespace, "uid": settings.run_uid}
    return {**config.model_dump(mode="json"), "run": place, **_start(settings)}


def _start(settings: Settings) -> dict[str, Any]:
    """The state that the run started from, and which run saved it."""
    if settings.start_from is None:
        return {}
    parent = settings.parent
    return {
        "start_from": {
            "run": parent.run,
            "step": parent.step,
            "state_path": settings.start_from,
            "wandb_url": parent.wandb_url,
        }
    }
