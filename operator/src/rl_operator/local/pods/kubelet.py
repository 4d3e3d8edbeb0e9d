"""The node of local mode: turns the pods of one run into processes, and records their state."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import aiohttp

from rl_operator.api.kubernetes_objects import OwnerReference, PodObject, PodStatus
from rl_operator.api.names import ATTEMPT_LABEL, COMPONENT_LABEL, ENVIRONMENT_COMPONENT, OPENENV_CONTAINER
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.pods.pod_lifecycle import Know, PodWorker
from rl_operator.local.pods.pod_status import SUPERVISOR_LOST, PodEnd, lost_pod_status
from rl_operator.local.programs.launch import PodPorts, Surroundings, choose_ports, write_volumes
from rl_operator.local.programs.leash import Leash, end_left_over
from rl_operator.local.state.layout import PodFolder
from rl_operator.local.state.state_store import Change, StateStore, without_finalizer
from rl_operator.operator_errors import GoneError, TargetUnreachableError

KUBELET_FINALIZER = "rl-operator.dev/kubelet"
"""Keeps a pod's object until its processes are gone; on a cluster the API server waits for the kubelet the same way."""

BackendVariables = Callable[[PodObject, Know], Awaitable[Mapping[str, str]]]
"""For a pod: the variables that point its trainer at the backend, once the backend responds; see `pod_lifecycle`."""

TROUBLE_SECONDS = 5.0
"""How soon a failed write of a status is retried."""

logger = logging.getLogger(__name__)


class Kubelet:
    """All pods of one run. `changed` is called after every change of a pod's object."""

    def __init__(
        self,
        store: StateStore,
        *,
        caller: Mapping[str, str],
        backend: BackendVariables,
        leash: Leash,
        session: aiohttp.ClientSession,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._caller = caller
        self._interpreters = Interpreters(store.layout, caller)
        self._backend = backend
        self._leash = leash
        self._session = session
        self._changed = changed
        self._lives: dict[str, _Life] = {}

    def sync(self, pods: tuple[PodObject, ...]) -> None:
        """Start what is new, stop what is to end, and retry failed writes."""
        for pod in pods:
            metadata = pod["metadata"]
            if KUBELET_FINALIZER not in metadata.get("finalizers", []):
                continue
            life = self._lives.get(metadata["uid"])
            if life is None:
                self._adopt(pod)
                continue
            if life.status != pod.get("status"):
                self._write_status(pod, life)
            if life.task.done():
                self._release(pod)
            elif "deletionTimestamp" in metadata:
                life.worker.stop()

    def trainer_url(self, pod_uid: str) -> str | None:
        """The trainer's ops port, while its pod runs here."""
        life = self._lives.get(pod_uid)
        return life.ports.ops_url("trainer") if life and not life.task.done() else None

    @property
    def busy(self) -> bool:
        return any(not life.task.done() for life in self._lives.values())

    async def close(self) -> None:
        """Stop every pod normally; returns when their processes are gone."""
        for life in self._lives.values():
            life.worker.stop()
        await asyncio.gather(*(life.task for life in self._lives.values()), return_exceptions=True)

    def _start(self, pod: PodObject) -> None:
        sidecars = [container["name"] for container in pod["spec"].get("initContainers", [])]
        ports = choose_ports(self._data_ports(pod), openenv=OPENENV_CONTAINER in sidecars)

        def report(status: PodStatus) -> None:
            life.status = status
            self._write_status(pod, life)

        def prepare() -> Surroundings:
            folder, namespace = self._folder(pod), pod["metadata"]["namespace"]
            if _component(pod) != ENVIRONMENT_COMPONENT:
                folder.wandb.mkdir(parents=True, exist_ok=True)
            write_volumes(pod["spec"], folder, lambda name: self._config_map(namespace, name))
            return Surroundings(folder, ports, self._caller, self._interpreters)

        backend = partial(self._backend, pod)
        worker = PodWorker(pod, prepare, backend, leash=self._leash, session=self._session, report=report)
        task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        life = self._lives[pod["metadata"]["uid"]] = _Life(pod, worker, task, ports)
        task.add_done_callback(lambda _: self._finish(pod, life))

    def _data_ports(self, pod: PodObject) -> PodPorts | None:
        """For an environment's pod, those of its attempt's own pod: what a Service does on a cluster."""
        if _component(pod) != ENVIRONMENT_COMPONENT:
            return None
        lives = (life for life in self._lives.values() if _attempt(life.pod) == _attempt(pod))
        return next((life.ports for life in lives if _component(life.pod) != ENVIRONMENT_COMPONENT), None)

    def _finish(self, pod: PodObject, life: "_Life") -> None:
        """The pod is over; an internal error must not leave it behind as if it were running."""
        if fault := life.task.exception():
            logger.error("pod %s was abandoned", pod["metadata"]["name"], exc_info=fault)
            end = PodEnd("KubeletFailed", f"A fault in rlctl's supervisor ended the pod: {fault!r}", "KubeletFailed")
            life.status = lost_pod_status({**pod, "status": life.status or {}}, self._folder(pod), end)
            self._write_status(pod, life)
        self._release(pod)

    def _folder(self, pod: PodObject) -> PodFolder:
        return self._store.layout.pod(pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        data: Mapping[str, str] = (self._store.get("ConfigMap", namespace, name) or {}).get("data", {})
        return data

    def _adopt(self, pod: PodObject) -> None:
        """Start a new pod; one left by an earlier supervisor is lost. None of its processes stay alive."""
        for lock in self._folder(pod).locks:
            end_left_over(lock)
        if "status" not in pod:
            self._start(pod)
            return
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            status = lost_pod_status(pod, self._folder(pod), SUPERVISOR_LOST)
            self._change(pod, lambda manifest: manifest.update(status=status))
        self._release(pod)

    def _write_status(self, pod: PodObject, life: "_Life") -> None:
        self._change(pod, lambda manifest: manifest.update(status=life.status))

    def _release(self, pod: PodObject) -> None:
        self._change(pod, without_finalizer(KUBELET_FINALIZER))

    def _change(self, pod: PodObject, change: Change) -> None:
        """If the state folder cannot be written, that costs time, not the pod: `sync` retries."""
        metadata = pod["metadata"]
        try:
            self._store.update("Pod", metadata["namespace"], metadata["name"], change, uid=metadata["uid"])
        except GoneError:
            pass
        except TargetUnreachableError as error:
            logger.warning("%s", error)
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._changed)
            return
        self._changed()


@dataclass
class _Life:
    """One pod that this kubelet started, and its last status."""

    pod: PodObject
    worker: PodWorker
    task: asyncio.Task[None]
    ports: PodPorts
    status: PodStatus | None = None


def _component(pod: PodObject) -> str | None:
    return pod["metadata"].get("labels", {}).get(COMPONENT_LABEL)


def _attempt(pod: PodObject) -> tuple[str, str]:
    """Uid of the run and number of the attempt."""
    metadata = pod["metadata"]
    owner = next(iter(metadata.get("ownerReferences", [])), OwnerReference())
    return owner.get("uid", ""), metadata.get("labels", {}).get(ATTEMPT_LABEL, "")
