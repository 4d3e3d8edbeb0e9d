"""W&B's GraphQL, as much as one query needs: the query of its own public client, with fewer fields.

Source: `wandb/apis/public/runs.py` of the SDK 0.31 (`Runs.QUERY`, `Api().runs(path, filters={"name": {"$in": …}})`).
`Run.name` is the run's id; the name that users see is `displayName`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from rl_operator.api.model import ObservedModel
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.observed.wandb_run import NOT_THERE, WandbRun, parse_summary, read_wandb_run

MOST_RUNS: Final = 100
"""Per query: W&B's own client asks for pages of 50, and its server accepts up to 1,000."""

QUERY: Final = """
query Runs($project: String!, $entity: String!, $perPage: Int = 50, $filters: JSONString) {
    project(name: $project, entityName: $entity) {
        runs(filters: $filters, first: $perPage) {
            edges {
                node {
                    name
                    state
                    summaryMetrics
                }
            }
        }
    }
}
"""


class WandbRefusedError(Exception):
    """W&B received the query and says why it does not answer it."""


class _Node(ObservedModel):
    name: str
    state: str
    summary_metrics: str | None = None


class _Edge(ObservedModel):
    node: _Node


class _Runs(ObservedModel):
    edges: tuple[_Edge, ...] = ()


class _Project(ObservedModel):
    runs: _Runs = _Runs()


class _Data(ObservedModel):
    project: _Project | None = None


class _Error(ObservedModel):
    message: str = "no message"


class _Answer(ObservedModel):
    data: _Data | None = None
    errors: tuple[_Error, ...] = ()


def question(entity: str, project: str, run_ids: Sequence[str]) -> dict[str, object]:
    """The body of one request, for at most MOST_RUNS runs."""
    variables = {
        "entity": entity,
        "project": project,
        "perPage": len(run_ids),
        "filters": json.dumps({"name": {"$in": list(run_ids)}}),
    }
    return {"query": QUERY, "variables": variables, "operationName": "Runs"}


def read_answer(document: object, run_ids: Sequence[str]) -> Mapping[str, WandbRun]:
    """The requested runs that exist, by id; a project that does not exist has none.

    Raises RefusedError for a response with errors, ValidationError for one of another shape.
    """
    answer = _Answer.model_validate(document)
    if answer.errors:
        raise WandbRefusedError(answer.errors[0].message)
    project = answer.data.project if answer.data else None
    nodes = [edge.node for edge in project.runs.edges] if project else []
    asked = set(run_ids)
    return {
        node.name: read_wandb_run(node.state, parse_summary(node.summary_metrics))
        for node in nodes
        if node.name in asked
    }


DEFAULT_BASE_URL: Final = "https://api.wandb.ai"
"""The SDK's default."""


@dataclass(frozen=True, slots=True)
class WandbProject:
    """A project on a server. The operator's key goes to `base_url`: only an RLRuntime determines it."""

    base_url: str
    entity: str
    project: str


def place_of(run: TrainingRun, runtime: Runtime) -> WandbProject | None:
    """Where to query the run; None: its trainer has no key, is offline, or its project is unknown.

    The trainer's report takes precedence (W&B chooses an entity if none was requested), then what the run requests,
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
