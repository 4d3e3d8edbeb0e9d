"""Where a run's W&B run is, as far as somebody has said so."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import Runtime
from rl_operator.status.observed.wandb_run import NOT_THERE

DEFAULT_BASE_URL: Final = "https://api.wandb.ai"
"""The SDK's own."""


@dataclass(frozen=True, slots=True)
class WandbProject:
    """A project on a server. The operator's key goes to `base_url`: only an RLRuntime decides it."""

    base_url: str
    entity: str
    project: str


def place_of(run: TrainingRun, runtime: Runtime) -> WandbProject | None:
    """Where to ask for the run; None: its trainer has no key, is offline, or nobody knows the project.

    The trainer's own word comes first (W&B chooses an entity where none was asked for), then what the run asks for,
    then the runtime's.
    """
    told, asked, usual = run.status.wandb, run.spec.wandb, runtime.spec.wandb
    if usual.key_secret is None or (told and (told.state or "").startswith(NOT_THERE)):
        return None
    entity, project = entity_and_project(told.url) if told and told.url else (None, None)
    entity, project = entity or asked.entity or usual.entity, project or asked.project or usual.project
    if not entity or not project:
        return None
    return WandbProject((usual.base_url or DEFAULT_BASE_URL).rstrip("/"), entity, project)


def entity_and_project(url: str) -> tuple[str | None, str | None]:
    """Entity and project of a run's page: `https://wandb.ai/ENTITY/PROJECT/runs/ID`."""
    try:
        *_, entity, project, runs, _run_id = urlsplit(url).path.split("/")
    except ValueError:
        return None, None
    return (unquote(entity), unquote(project)) if runs == "runs" else (None, None)
