"""A W&B server in memory: as much of its protocol as the SDK 0.31 needs for one run, and the faults a server can have.

Runs are created and resumed by GraphQL, history and summary come as lines of a file stream, and files are uploaded to
URLs that a GraphQL mutation hands out.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.serving import bind, json_response, serve

Json = dict[str, Any]

ENTITY = "me"
CLOSED_ENTITY = "them"
"""Nobody may see its projects."""

OPERATION = re.compile(r"(?:query|mutation)\s+(\w+)")


@dataclass
class WandbRun:
    """What the server holds of one run."""

    project: str
    name: str
    fields: Json = field(default_factory=dict)
    rows_by_number: dict[int, Json] = field(default_factory=dict)
    summary: Json = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    state: str = "running"

    @property
    def rows(self) -> list[Json]:
        """Its history, as sent. A row is identified by its `_step`: it is stored once, however often it is sent."""
        return [row for _, row in sorted(self.rows_by_number.items())]

    @property
    def config(self) -> Json:
        return {name: entry["value"] for name, entry in json.loads(self.fields["config"]).items() if name != "_wandb"}

    @property
    def axes(self) -> dict[str, str]:
        """From metric (or glob) to the metric that is its axis, of `define_metric`."""
        defined = json.loads(self.fields["config"])["_wandb"]["value"].get("m", [])
        names = [each.get("1") or each.get("2") for each in defined]
        return {name: names[each["5"] - 1] for name, each in zip(names, defined, strict=True) if "5" in each}

    def points(self, metric: str) -> list[tuple[float, float]]:
        """(`train/step`, value) of every row that has the metric."""
        return [(row["train/step"], row[metric]) for row in self.rows if metric in row]

    def to_bucket(self) -> Json:
        return {
            "id": f"id-{self.name}",
            "name": self.name,
            "displayName": self.fields.get("displayName"),
            "state": self.state,
            "config": self.fields.get("config", "{}"),
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(self.rows),
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in self.rows[-1:]]),
            "eventsTail": "[]",
            "tags": self.fields.get("tags") or [],
            "wandbConfig": json.dumps({"t": 1}),  # without it the SDK considers the run never started
            "project": {"id": "p", "name": self.project, "entity": {"id": "e", "name": ENTITY}},
        }


class WandbServer:
    """`status` answers every request with that error, and `headers`; `silent` never answers."""

    def __init__(self) -> None:
        self.url = ""
        self.runs: dict[str, WandbRun] = {}
        self.files: dict[str, bytes] = {}
        self.artifacts: list[Json] = []
        self.requests = 0
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.silent = False
        self.queries: list[Json] = []
        self.authorizations: set[str | None] = set()

    def app(self) -> Starlette:
        anything = Route("/{path:path}", self._accept, methods=["GET", "POST", "PUT"])
        return Starlette(
            routes=[
                Route("/graphql", self._graphql, methods=["POST"]),
                Route("/files/{entity}/{project}/{run}/file_stream", self._stream, methods=["POST"]),
                Route("/upload/{name:path}", self._upload, methods=["PUT"]),
                anything,  # telemetry
            ]
        )

    async def _fault(self) -> Response | None:
        self.requests += 1
        while self.silent:
            await asyncio.sleep(0.05)
        if self.status is None:
            return None
        answer = json_response({"error": "scripted"}, self.status)
        answer.headers.update(self.headers)
        return answer

    async def _graphql(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.authorizations.add(request.headers.get("authorization"))
        if fault := await self._fault():
            return fault
        found = OPERATION.search(body["query"])
        assert found is not None, body["query"]
        answer = getattr(self, f"_{found[1]}", None)
        if answer is None:
            return json_response({"errors": [{"message": f"this server does not know {found[1]}"}]})
        variables = body.get("variables") or {}
        self.queries.append(body)
        if variables.get("entity") == CLOSED_ENTITY:
            return json_response({"errors": [{"message": "permission denied"}]})
        return json_response({"data": answer(variables.get("input", variables))})

    async def _stream(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if fault := await self._fault():
            return fault
        run = self.runs[request.path_params["run"]]
        files = body.get("files", {})
        if history := files.get("wandb-history.jsonl"):
            rows = [json.loads(line) for line in history["content"]]
            run.rows_by_number |= {row["_step"]: row for row in rows}
        if summary := files.get("wandb-summary.json"):
            run.summary = json.loads(summary["content"][-1])
        if body.get("complete"):
            run.exit_codes.append(body["exitcode"])
            run.state = "failed" if body["exitcode"] else "finished"
        return json_response({"exitcode": None, "limits": {}})

    async def _upload(self, request: Request) -> Response:
        body = await request.body()
        if fault := await self._fault():
            return fault
        self.files[request.path_params["name"]] = body
        return json_response({})

    async def _accept(self, _request: Request) -> Response:
        return await self._fault() or json_response({})

    # GraphQL operations, by their names.

    def _Viewer(self, _variables: Json) -> Json:
        return {"viewer": {"id": "v", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}}

    def _GetDefaultEntity(self, _variables: Json) -> Json:
        return {"viewer": {"id": "v", "entity": ENTITY}}

    def _Runs(self, variables: Json) -> Json:
        """The public client's listing: `Run.name` is the id. A project that does not exist is null."""
        filters = json.loads(variables["filters"])
        wanted = filters["name"]["$in"]
        known = [run for run in self.runs.values() if run.project == variables["project"]]
        if not known or variables["entity"] != ENTITY:
            return {"project": None}
        found = [run for run in known if run.name in wanted][: variables["perPage"]]
        edges = [{"node": run.to_bucket() | {"projectId": "1"}, "cursor": run.name} for run in found]
        page = {"endCursor": None, "hasNextPage": False}
        return {"project": {"internalId": "p", "runCount": len(found), "readOnly": False,
                            "runs": {"edges": edges, "pageInfo": page}}}  # fmt: skip

    def _RunResumeStatus(self, variables: Json) -> Json:
        run = self.runs.get(variables["name"])
        if run is None:
            return {"model": None}
        entity = {"id": "e", "name": ENTITY}
        return {"model": {"id": "p", "name": run.project, "entity": entity, "bucket": run.to_bucket()}}

    def _UpsertBucket(self, variables: Json) -> Json:
        inserted = variables["name"] not in self.runs
        run = self.runs.setdefault(variables["name"], WandbRun(variables["project"], variables["name"]))
        run.fields |= {name: value for name, value in variables.items() if value is not None}
        return {"upsertBucket": {"bucket": run.to_bucket(), "inserted": inserted}}

    def _CreateRunFiles(self, variables: Json) -> Json:
        files = [self._uploaded_to(name) for name in variables["files"]]
        return {"createRunFiles": {"runID": f"id-{variables['run']}", "uploadHeaders": [], "files": files}}

    def _ArtifactType(self, _variables: Json) -> Json:
        return {"project": {"artifact": None}}

    def _CreateArtifact(self, variables: Json) -> Json:
        self.artifacts.append(variables)
        sequence = {"id": "s", "latestArtifact": None}
        artifact = {"id": f"artifact-{len(self.artifacts)}", "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def _CreateArtifactManifest(self, variables: Json) -> Json:
        file = {"id": "f", **self._uploaded_to(f"{variables['artifactID']}/manifest.json"), "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": "m", "file": file}}}

    _UpdateArtifactManifest = _CreateArtifactManifest

    def _CreateArtifactFiles(self, variables: Json) -> Json:
        nodes = [
            {"node": {"id": name, **self._uploaded_to(f"{artifact}/{name}"), "name": name, "uploadHeaders": [],
                      "artifact": {"id": artifact}, "storagePath": name, "uploadMultipartUrls": None}}
            for artifact, name in ((each["artifactID"], each["name"]) for each in variables["artifactFiles"])
        ]  # fmt: skip
        return {"createArtifactFiles": {"files": {"edges": nodes}}}

    def _CommitArtifact(self, variables: Json) -> Json:
        return {"commitArtifact": {"artifact": {"id": variables["artifactID"], "digest": "d"}}}

    def _uploaded_to(self, name: str) -> Json:
        return {"name": name, "displayName": name, "uploadUrl": f"{self.url}/upload/{name}"}


@asynccontextmanager
async def running_wandb_server() -> AsyncIterator[WandbServer]:
    server = WandbServer()
    async with serve(server.app(), bind("127.0.0.1", 0, "WANDB_BASE_URL")) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server
