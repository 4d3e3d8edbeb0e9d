"""A cluster as values in memory: an API server whose watch lags, kubelets, and one operator that may die at any call.

The caches, the run client and the reconcile are the operator's own. Time only passes when a test lets it.
"""

import asyncio
import copy
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.rl_operator.cluster.documents import runtime_document
from tests.unit.rl_operator.told_metrics import ToldMetrics

from rl_operator.api.names import (
    COMPONENT_LABEL,
    QUEUE_NAME_LABEL,
    RUN_LABEL,
    RUN_UID_LABEL,
    RUNTIME_PLURAL,
    TRAINING_COMPONENT,
)
from rl_operator.cluster.api_server.client import JSON, JSON_PATCH, MERGE_PATCH, ClusterClient, Params, PatchType
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.api_server.resources import CONFIG_MAPS, NETWORK_POLICIES, PODS, RUNS, SERVICES, Resource
from rl_operator.cluster.cache.caches import Caches, Catalogs, list_own_kinds
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache
from rl_operator.cluster.cluster_run_client import ClusterRunClient
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.operator_errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    OperatorError,
    TargetUnreachableError,
)
from rl_operator.reconcile import ReconcilePace, reconcile
from rl_operator.status.observed.observation import format_time

NAMESPACE = "team-a"
KUEUE_GATE = "kueue.x-k8s.io/admission"
PACE = ReconcilePace(backoff_seconds=10, progress_seconds=60)
GRACE = timedelta(seconds=60)
BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
RETRY_SECONDS = 1.0
"""After an error; the queue's own pauses are tested with it."""

Document = dict[str, Any]


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


@dataclass
class Mishap:
    """What happens at the `calls`-th write from now on, before or after it is done: `act` may raise."""

    calls: int
    before: bool
    act: Callable[[], None]


ERRORS: Mapping[str, type[BaseException]] = {
    "killed": KilledError,
    "unreachable": TargetUnreachableError,
    "conflict": ConflictError,
    "forbidden": ForbiddenError,
}


def failing(kind: str) -> Callable[[], None]:
    def fail() -> None:
        raise ERRORS[kind](kind)

    return fail


class SimulatedApi(ClusterClient):
    """The calls of a client on objects in memory. Watch events wait in `news` until the test delivers them."""

    def __init__(self) -> None:  # opens no connection, unlike its parent
        self.now = BEGIN
        self.objects: dict[str, Document] = {}
        self.news: dict[str, deque[tuple[str, Any]]] = {}
        self.mishap: Mishap | None = None
        self.over_quota: set[str] = set()
        """Names of runs that get no pod."""
        self.dead = False
        self.writes = 0
        self.ended: set[str] = set()
        """Uids of the pods whose processes are gone, and whose kubelet knows it."""
        self.history: list[Document] = []
        """Every version of every run."""
        self._version = 0

    # --- the operator's calls -----------------------------------------------------------------------------------
    async def get(self, path: str, params: Params | None = None, accept: str = JSON) -> Any:  # noqa: ARG002 -- whole
        await self._pause()
        return copy.deepcopy(self.live(path))

    async def each(
        self,
        path: str,
        params: Params,  # noqa: ARG002 -- all
        take: Callable[[Any], None],
        accept: str = JSON,  # noqa: ARG002 -- all, whole
    ) -> str:
        for document in self.all(path.rpartition("/")[2]):
            take(copy.deepcopy(document))
        return str(self._version)

    async def create(self, path: str, body: Mapping[str, object], accept: str = JSON) -> Any:
        answer = await self._written(lambda: self.put_new(path, body))
        return answer if accept == JSON else {"kind": "PartialObjectMetadata", "metadata": answer["metadata"]}

    async def patch(self, path: str, body: Any, patch_type: PatchType = MERGE_PATCH) -> Any:
        return await self._written(lambda: self._patched(path, body, patch_type))

    async def update(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._written(lambda: self._updated(path, body))

    async def delete(self, path: str, uid: str, resource_version: str | None = None) -> Any:
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        return await self._written(lambda: self._deleted(path, preconditions))

    async def _pause(self) -> None:
        """Others may continue meanwhile, but not a killed operator."""
        await asyncio.sleep(0)
        if self.dead:
            raise KilledError

    async def _written(self, write: Callable[[], Document]) -> Document:
        await self._pause()
        mishap, self.writes = self.mishap, self.writes + 1
        if mishap:
            mishap.calls -= 1
        due = mishap if mishap and mishap.calls <= 0 else None
        if due and due.before:
            self._strike(due)
        answer = copy.deepcopy(write())
        if due:
            self._strike(due)
        await self._pause()
        return answer

    def _strike(self, mishap: Mishap) -> None:
        self.mishap = None
        try:
            mishap.act()
        except KilledError:
            self.dead = True
            raise

    # --- objects ------------------------------------------------------------------------------------------------
    def live(self, path: str) -> Document:
        """Raises GoneError."""
        try:
            return self.objects[path.removesuffix("/status")]
        except KeyError:
            raise GoneError(f"{path} is not there") from None

    def all(self, plural: str) -> tuple[Document, ...]:
        return tuple(o for path, o in sorted(self.objects.items()) if path.split("/")[-2] == plural)

    def put_new(self, path: str, body: Mapping[str, Any]) -> Document:
        if body["kind"] == "Pod" and body["metadata"]["labels"][RUN_LABEL] in self.over_quota:
            raise ForbiddenError("exceeded quota")
        own = f"{path}/{body['metadata']['name']}"
        if own in self.objects:
            raise ConflictError(f"{own} exists")
        document = copy.deepcopy(dict(body))
        if body["kind"] == "Pod" and QUEUE_NAME_LABEL in body["metadata"]["labels"]:
            document["spec"].setdefault("schedulingGates", []).append({"name": KUEUE_GATE})
        document["metadata"] |= {
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(self._version))),
            "generation": 1,
            "creationTimestamp": format_time(self.now),
        }
        return self._changed(own, document, "ADDED")

    def edit(self, path: str, change: Callable[[Document], None]) -> Document:
        """A write by another client than the operator."""
        document = copy.deepcopy(self.live(path))
        change(document)
        return self._changed(path, document)

    def _patched(self, path: str, body: Any, patch_type: PatchType) -> Document:
        document = self.live(path)
        changed = json_patched(document, body) if patch_type == JSON_PATCH else merged(document, body)
        self._require_same(path, changed)
        if path.endswith("/status"):
            changed = {**document, "status": changed.get("status", {})}
        return self._changed(path.removesuffix("/status"), changed)

    def _updated(self, path: str, body: Mapping[str, Any]) -> Document:
        """Of the status only: nothing else is replaced as a whole."""
        self._require_same(path, body)
        return self._changed(path.removesuffix("/status"), {**self.live(path), "status": body["status"]})

    def _require_same(self, path: str, document: Mapping[str, Any]) -> None:
        live = self.live(path)["metadata"]
        for name in ("uid", "resourceVersion"):
            if document["metadata"][name] != live[name]:
                raise ConflictError(f"{path}: another {name}")

    def _deleted(self, path: str, preconditions: Mapping[str, str]) -> Document:
        document = self.live(path)
        if any(document["metadata"][name] != value for name, value in preconditions.items()):
            raise ConflictError(f"{path}: another object or version")
        return self.remove(path)

    def remove(self, path: str) -> Document:
        """Delete like the API server: an object with finalizers, or a running pod, is only marked at first."""
        document = copy.deepcopy(self.live(path))
        if "deletionTimestamp" not in document["metadata"]:
            grace = GRACE if is_bound(document) else timedelta()
            document["metadata"]["deletionTimestamp"] = format_time(self.now + grace)
        return self._changed(path, document)

    def _changed(self, path: str, document: Document, type_: str = "MODIFIED") -> Document:
        """Store a new version of an object, if it differs, and send the event."""
        if document == self.objects.get(path):
            return document
        self._version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self._version)}
        document = {**document, "metadata": metadata}
        runs = is_bound(document) and metadata["uid"] not in self.ended
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and not runs:
            type_ = "DELETED"
            self.objects.pop(path, None)
        else:
            self.objects[path] = document
        plural = path.split("/")[-2]
        if plural == RUNS.plural:
            self.history.append(document)
        self.news.setdefault(plural, deque()).append((type_, copy.deepcopy(document)))
        return document


def is_bound(document: Document) -> bool:
    return bool(document.get("spec", {}).get("nodeName"))


def merged(document: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), value)
    return base


def json_patched(document: Document, patch: Any) -> Document:
    """RFC 6902, as far as finalizers need it."""
    changed = copy.deepcopy(document)
    for step in patch:
        *way, last = step["path"].strip("/").split("/")
        place: Any = changed
        for part in way:
            place = place.get(part, {}) if isinstance(place, dict) else place[int(part)]
        index: Any = int(last) if isinstance(place, list) else last
        found = place[index] if isinstance(place, dict) or index < len(place) else None
        if step["op"] == "test" and found != step["value"]:
            raise InvalidError(f"{step['path']} is {found}")
        if step["op"] == "remove":
            del place[index]
    return changed


@dataclass
class SimulatedCluster:
    """The API server, its kubelets, and an operator with a queue whose timers are virtual."""

    limit: int | None = None
    api: SimulatedApi = field(default_factory=SimulatedApi)
    attempt_metrics: ToldMetrics = field(default_factory=ToldMetrics)
    due: dict[Key, datetime] = field(default_factory=dict)
    """When each run is to be looked at next."""

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        limits = bundled_runtimes()["tiny"].spec.limits.to_wire() | (
            {"maxPriority": 2} if self.limit is None else {"maxActiveRuns": self.limit, "maxPriority": 2}
        )
        self.api.put_new(f"/apis/rl-operator.dev/v1alpha1/{RUNTIME_PLURAL}", runtime_document(limits=limits))
        self.start_operator()

    def close(self) -> None:
        self._loop.close()

    # --- the operator -------------------------------------------------------------------------------------------
    def start_operator(self) -> None:
        """A new process: it lists everything, and reconciles everything once."""
        self.api.dead = False
        self.api.news.clear()
        self.due = {}
        self.caches = Caches(Catalogs(frozenset(r.spec.image for r in bundled_runtimes().values())))
        self._loop.run_until_complete(list_own_kinds(self.api, self.caches, None, lambda *_: None))
        for plural, store in self._stores.items():
            for document in self.api.all(plural):
                store.put(document)
        recorder = EventRecorder(self.api)
        self.client = ClusterRunClient(self.api, self.caches, recorder, self.attempt_metrics)
        self.caches.runtime_queues.on_change(
            start=self.look_at, moved=lambda key: self.look_at(key, PACE.progress_seconds)
        )
        for run in self.caches.runs:
            self.look_at(run.key)
        for key in self.caches.pods.runs():
            self.look_at(key)

    @property
    def _stores(self) -> Mapping[str, ResourceCache[Any, Any]]:
        resources: Mapping[str, Resource[Any]] = {
            "Pod": PODS, "ConfigMap": CONFIG_MAPS, "Service": SERVICES, "NetworkPolicy": NETWORK_POLICIES
        }  # fmt: skip
        return {resources[kind].plural: store for kind, store in self.caches.children.items()}

    def look_at(self, key: Key, seconds: float = 0.0) -> None:
        at = self.api.now + timedelta(seconds=seconds)
        self.due[key] = min(at, self.due.get(key, at))

    def deliver(self, plural: str, count: int) -> None:
        """Deliver the next events of a resource's watch."""
        waiting = self.api.news.get(plural, deque())
        for _ in range(min(count, len(waiting))):
            type_, document = waiting.popleft()
            store: ResourceCache[Any, Any] | None = (
                self.caches.runs if plural == RUNS.plural else self._stores.get(plural)
            )
            if store is None:
                continue
            if key := store.apply({"type": type_, "object": document}):
                self.look_at(key)

    def deliver_all(self) -> None:
        for plural in tuple(self.api.news):
            self.deliver(plural, len(self.api.news[plural]))

    def work(self) -> None:
        """Reconcile side by side whatever is due, once."""
        keys = sorted(key for key, at in self.due.items() if at <= self.api.now)
        for key in keys:
            del self.due[key]
        self._loop.run_until_complete(self._reconcile(keys))
        if self.api.dead:
            self.start_operator()

    async def _reconcile(self, keys: list[Key]) -> None:
        outcomes = await asyncio.gather(*(self._look(key) for key in keys), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, KilledError):
                raise outcome

    async def _look(self, key: Key) -> None:
        try:
            again = await reconcile(key, self.client, lambda: self.api.now, PACE)
        except OperatorError:
            again = RETRY_SECONDS
        if again is not None:
            self.look_at(key, again)

    # --- people -------------------------------------------------------------------------------------------------
    def apply(self, name: str, *, queued: bool = False, **spec: Any) -> None:
        """`queued`: Kueue is to admit its pods."""
        labels = {"labels": {QUEUE_NAME_LABEL: "team"}} if queued else {}
        body = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": name, "namespace": NAMESPACE, **labels},
            "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
            "status": {},
        }
        self.api.put_new(RUNS.path(NAMESPACE), body)

    def run(self, name: str) -> Document | None:
        return self.api.objects.get(RUNS.path(NAMESPACE, name))

    def edit_run(self, name: str, **spec: Any) -> None:
        def change(run: Document) -> None:
            run["spec"] |= spec
            run["metadata"]["generation"] += 1

        self.api.edit(RUNS.path(NAMESPACE, name), change)

    def delete_run(self, name: str) -> None:
        self.api.remove(RUNS.path(NAMESPACE, name))

    def collect_garbage(self) -> None:
        alive = {run["metadata"]["uid"] for run in self.api.all(RUNS.plural)}
        for path, document in tuple(self.api.objects.items()):
            owners = document["metadata"].get("ownerReferences", ())
            if owners and not any(owner["uid"] in alive for owner in owners):
                self.api.remove(path)

    # --- pods ---------------------------------------------------------------------------------------------------
    def pods(self) -> Iterator[Document]:
        """The runs' own."""
        return (p for p in self.api.all(PODS.plural) if p["metadata"]["labels"][COMPONENT_LABEL] == TRAINING_COMPONENT)

    def admit(self, pod: Document) -> None:
        """As Kueue does."""
        self.api.edit(path_of(pod), lambda document: document["spec"]["schedulingGates"].remove({"name": KUEUE_GATE}))

    def play(self, pod: Document, phase: str, states: Mapping[str, Any], **status: Any) -> None:
        """Write a pod's status like its kubelet."""
        statuses = [{"name": name, "restartCount": 0, **state} for name, state in states.items()]
        whole = {"phase": phase, "initContainerStatuses": statuses[:1], "containerStatuses": statuses[1:], **status}

        def change(document: Document) -> None:
            document["status"] = whole
            document["spec"]["nodeName"] = "n1"

        self.api.edit(path_of(pod), change)

    def finish(self, pod: Document) -> None:
        """The kubelet's last report: the pod's processes are gone."""
        self.api.ended.add(pod["metadata"]["uid"])
        self.api.edit(path_of(pod), lambda document: document["metadata"].update(touched="by its kubelet"))

    def vanish(self, pod: Document) -> None:
        """Another client removes the finalizers and deletes by force."""
        self.api.ended.add(pod["metadata"]["uid"])
        self.api.edit(path_of(pod), lambda document: document["metadata"].update(finalizers=[]))
        if path_of(pod) in self.api.objects:
            self.api.remove(path_of(pod))

    def lives(self, pod: Document) -> bool:
        """Whether it runs or still may: not if it has ended or counts as lost."""
        metadata = pod["metadata"]
        gone = metadata.get("deletionTimestamp")
        lost = gone and self.api.now >= datetime.fromisoformat(gone) + timedelta(seconds=60)
        unborn = gone and not is_bound(pod)
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or metadata["uid"] in self.api.ended
        return not (over or lost or unborn)


def gates_of(pod: Document) -> tuple[str, ...]:
    return tuple(gate["name"] for gate in pod["spec"].get("schedulingGates", ()))


def path_of(document: Document) -> str:
    return PODS.path(document["metadata"]["namespace"], document["metadata"]["name"])


def owner_of(pod: Document) -> str:
    uid: str = pod["metadata"]["labels"][RUN_UID_LABEL]
    return uid
