"""Where rollouts are read on a cluster, against a client that answers as the API server does."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import orjson
import pytest
from tests.unit.rl_operator.render.test_rollout_sink import CLAIM, PLAIN
from tests.unit.rl_operator.samples import UID, inputs_of, run_document

from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.documents.parse import parse_run
from rl_operator.operator_errors import (
    ForbiddenError,
    GoneError,
    NameTakenError,
    PodNeededError,
    RefusedError,
    TargetUnreachableError,
    TemplateChangedError,
    WaitTimeoutError,
)
from rl_operator.render.manifests import render_run
from rl_operator.rollouts.rollout_source import RolloutFile, RolloutListing, RolloutSource
from rl_operator.targets import cluster_rollouts
from rl_operator.targets.cluster_rollouts import rollouts_of
from rl_operator.targets.target_loop import LoopThread

CORE = "/api/v1/namespaces/team-a"
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
TRAINER_POD = "sorting-0a1b2-1"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(name: str, labels: Mapping[str, str], *, owner: str = "", **status: Any) -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "labels": labels, "ownerReferences": owners, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": status}


def training_pod(state: str, *, owner: str = UID) -> dict[str, Any]:
    labels = {"rl-operator.dev/run": "sorting", "app.kubernetes.io/component": "training"}
    statuses = [{"name": "environment", "state": {"running": {}}}, {"name": "trainer", "state": {state: {}}}]
    found = pod(TRAINER_POD, labels, owner=owner, containerStatuses=statuses)
    token = {"name": "RL_OPS_TOKEN", "value": "t0ken"}
    return {**found, "spec": {"containers": [{"name": "environment"}, {"name": "trainer", "env": [token]}]}}


class ApiServer:
    """Holds pods and one ConfigMap, and starts the pod of a Job at once. `answers`: of the servers in pods."""

    def __init__(self, runtime: Runtime = PLAIN) -> None:
        run = parse_run(run_document(runtime="lab"))
        rendered = render_run(run, inputs_of(run, runtime))
        self.config_map: dict[str, Any] | None = rendered.config_map
        status = {"configMapName": "sorting-0a1b2c3d", "configHash": rendered.config_hash}
        self.run = parse_run({**run_document(runtime="lab"), "status": status})
        self.pods: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.job_status: dict[str, Any] = READY
        self.answers: dict[str, bytes | Exception] = {}
        self.refuses: Exception | None = None
        self.sent: list[str | None] = []

    async def each(self, path: str, params: Mapping[str, str], take: Callable[[dict[str, Any]], None]) -> None:
        assert path == f"{CORE}/pods"
        wanted = dict(each.split("=") for each in params["labelSelector"].split(","))
        for each in self.pods:
            if wanted.items() <= each["metadata"]["labels"].items():
                take(each)

    async def get(self, path: str) -> dict[str, Any]:
        assert path == f"{CORE}/configmaps/sorting-0a1b2c3d"
        if self.config_map is None:
            raise GoneError(path)
        return self.config_map

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == JOBS
        if self.refuses:
            raise self.refuses
        self.jobs.append(body)
        name = body["metadata"]["name"]
        labels = body["spec"]["template"]["metadata"]["labels"] | {"batch.kubernetes.io/job-name": name}
        self.pods.append({**pod(f"{name}-x", labels, **self.job_status), "spec": body["spec"]["template"]["spec"]})
        return body

    async def content(self, path: str, limit: int, begin: int, headers: Mapping[str, str]) -> bytes:
        assert limit >= 2**20
        self.sent.append(headers.get("X-RL-Ops-Token"))
        answer = self.answers.get(path, GoneError(path))
        if isinstance(answer, Exception):
            raise answer
        return answer[begin:]


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture
def notes() -> list[str]:
    return []


Opened = Callable[..., RolloutSource]


@pytest.fixture
def open_rollouts(loop: LoopThread, notes: list[str]) -> Opened:
    def call(server: ApiServer, run: TrainingRun | None = None, *, may_start: bool = True) -> RolloutSource:
        return rollouts_of(cast("ClusterClient", server), loop, run or server.run, notes.append, may_start=may_start)

    return call


def test_a_trainer_that_runs_is_asked(open_rollouts: Opened) -> None:
    server = ApiServer(CLAIM)
    server.pods = [training_pod("running", owner="of-another-run"), training_pod("running")]
    told = {"files": [{"name": "000001-1.jsonl.zst", "bytes": 3}], "every": 2, "note": "the disk is full", "new": 1}
    proxy = f"{CORE}/pods/{TRAINER_POD}:8002/proxy/rollouts"
    server.answers = {proxy: orjson.dumps(told), f"{proxy}/000001-1.jsonl.zst": b"abc"}
    source = open_rollouts(server)
    assert source.where == f"pod {TRAINER_POD}"
    assert source.listing() == RolloutListing((RolloutFile("000001-1.jsonl.zst", 3),), 2, "the disk is full")
    assert source.content("000001-1.jsonl.zst") == b"abc"
    assert source.content("000001-1.jsonl.zst", 2) == b"c"
    assert server.jobs == []
    assert server.sent == ["t0ken"] * 3, "from the pod's spec, which the caller may read"
    assert "t0ken" not in repr(source)


def test_a_run_that_has_not_started(open_rollouts: Opened) -> None:
    with pytest.raises(RefusedError, match="run team-a/sorting has not started, so it has no rollouts yet"):
        open_rollouts(ApiServer(), parse_run(run_document(runtime="lab")))


@pytest.mark.parametrize("pods", [[], [training_pod("terminated")]], ids=["gone", "ended"])
def test_without_a_sink_they_go_with_the_trainer(open_rollouts: Opened, pods: list[dict[str, Any]]) -> None:
    server = ApiServer(PLAIN)
    server.pods = pods
    with pytest.raises(
        RefusedError, match=r"went with its trainer\. The platform can keep them for good: spec\.rollouts"
    ):
        open_rollouts(server)
    server.config_map = None
    with pytest.raises(RefusedError, match="went with its trainer"):
        open_rollouts(server)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held["data"].update({"pod.json": held["data"]["pod.json"] + " "}), TemplateChangedError),
        (lambda held: held["data"].update({"more": ""}), TemplateChangedError),
        (lambda held: held["metadata"]["ownerReferences"][0].update(uid="another"), NameTakenError),
        (lambda held: held["metadata"].pop("ownerReferences"), NameTakenError),
    ],
    ids=["changed", "added", "of another run", "of nobody"],
)
def test_no_job_is_made_from_another_template(
    open_rollouts: Opened, change: Callable[[dict[str, Any]], object], said: type[Exception]
) -> None:
    server = ApiServer(CLAIM)
    assert server.config_map is not None
    change(server.config_map)
    with pytest.raises(said, match="ConfigMap team-a/sorting-"):
        open_rollouts(server)
    assert server.jobs == []


def test_what_was_kept_is_read_by_a_job(open_rollouts: Opened, notes: list[str]) -> None:
    server = ApiServer(CLAIM)
    server.pods = [training_pod("terminated")]
    with pytest.raises(PodNeededError, match="the trainer has ended"):
        open_rollouts(server, may_start=False)
    assert server.jobs == []
    source = open_rollouts(server)
    [job] = server.jobs
    name = job["metadata"]["name"]
    assert notes == [f"Job team-a/{name} starts, which reads the rollouts that were kept"]
    server.answers = {f"{CORE}/pods/{name}-x:8002/proxy/rollouts": b'{"files": []}'}
    assert source.listing() == RolloutListing(())
    [token] = [each["value"] for each in env_of(job) if each["name"] == "RL_OPS_TOKEN"]
    assert server.sent == [token]
    assert len(token) >= 32
    open_rollouts(server, may_start=False)
    assert len(server.jobs) == 1, "the pod that is there reads for the next one, too"
    server.pods[-1]["status"] = {"phase": "Succeeded"}
    open_rollouts(server)
    assert len(server.jobs) == 2
    assert {"name": "RL_OPS_TOKEN", "value": token} not in env_of(server.jobs[1]), "each draws its own"


def env_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    [container] = job["spec"]["template"]["spec"]["containers"]
    variables: list[dict[str, Any]] = container["env"]
    return variables


def test_an_api_server_that_is_kept_out_says_what_lets_it_in(open_rollouts: Opened) -> None:
    server = ApiServer(CLAIM)
    server.pods = [training_pod("running")]
    unreached = "the API server answered 503: error trying to reach service: dial tcp 10.1.2.3:8002: i/o timeout"
    server.answers = {f"{CORE}/pods/{TRAINER_POD}:8002/proxy/rollouts": TargetUnreachableError(unreached)}
    with pytest.raises(TargetUnreachableError) as caught:
        open_rollouts(server).listing()
    said = str(caught.value)
    assert said.startswith(unreached)
    assert f"pod {TRAINER_POD} is ready" in said
    assert "networkPolicy.runs.from" in said


def test_rights_that_are_missing_are_named(open_rollouts: Opened) -> None:
    server = ApiServer(CLAIM)
    server.refuses = ForbiddenError("the API server answered 403")
    with pytest.raises(ForbiddenError, match="ask for the right to create Jobs in namespace team-a"):
        open_rollouts(server)
    server.pods = [training_pod("running")]
    server.answers = {f"{CORE}/pods/{TRAINER_POD}:8002/proxy/rollouts": ForbiddenError("403")}
    with pytest.raises(
        ForbiddenError, match="the right to get pods/proxy in namespace team-a, which the role edit has"
    ):
        open_rollouts(server).listing()


def test_a_reader_that_fails_says_why(open_rollouts: Opened) -> None:
    server = ApiServer(CLAIM)
    ended = {
        "name": "rollouts",
        "state": {"terminated": {"exitCode": 2, "reason": "Error", "message": "no such command"}},
    }
    server.job_status = {"phase": "Failed", "containerStatuses": [ended]}
    with pytest.raises(TargetUnreachableError, match=r"has ended: exited \(2\) Error: no such command"):
        open_rollouts(server)


def test_a_reader_that_never_starts_says_why(open_rollouts: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_rollouts, "START_SECONDS", 0.02)
    monkeypatch.setattr(cluster_rollouts, "POLL_SECONDS", 0.01)
    server = ApiServer(CLAIM)
    attached = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "the volume is elsewhere",
    }
    server.job_status = {"phase": "Pending", "conditions": [attached]}
    with pytest.raises(WaitTimeoutError, match=r"is not ready after 0\.02 s: Unschedulable: the volume is elsewhere"):
        open_rollouts(server)


def test_what_is_not_there(open_rollouts: Opened) -> None:
    server = ApiServer(CLAIM)
    server.pods = [training_pod("running")]
    source = open_rollouts(server)
    with pytest.raises(RefusedError, match=f"pod {TRAINER_POD} has no rollouts: it is gone, or older than they are"):
        source.listing()
    for name in ("000001-1.jsonl.zst", "../../secrets/x", "a/b", "?x"):
        with pytest.raises(GoneError, match="there is no rollout file"):
            source.content(name)
    server.answers = {f"{CORE}/pods/{TRAINER_POD}:8002/proxy/rollouts": b'{"files": 3}'}
    with pytest.raises(TargetUnreachableError, match="in a way that is not known here"):
        source.listing()
