"""What outlives the program that started it on this machine: supervisors of runs, and the containers of Jobs."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rl_operator.api.kubernetes_objects import ConfigMapObject, JobObject, Manifest
from rl_operator.api.names import RUN_KIND
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.programs.launch import (
    NotLaunchableError,
    PodPorts,
    Surroundings,
    make_room,
    plan_launch,
    start_detached,
    write_volumes,
)
from rl_operator.local.state.layout import Layout, PodFolder
from rl_operator.local.state.locks import FileLock, holder, is_held
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, GoneError, RefusedError, TargetUnreachableError, WaitTimeoutError
from rl_operator.targets.target import JobContainer, JobPod

DELETION_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.2


class Supervisors:
    """Those of local runs: at most one per run; its lock shows whether it is alive."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._layout = store.layout
        self._started: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def look_after(self, namespace: str, name: str) -> None:
        """Start the run's supervisor if there is something to do and none is running or being started by us."""
        if self.is_at_work(namespace, name) or self._is_on_its_way(namespace, name):
            return
        if self._is_unsettled(namespace, name):
            self._start(namespace, name)

    def _is_on_its_way(self, namespace: str, name: str) -> bool:
        """Our own has not taken its lock yet: it imports for a second. One that had the lock may be ending."""
        process, lock = self._started.get((namespace, name)), self._layout.supervisor_lock(namespace, name)
        if process is None or process.poll() is not None:
            return False
        return not lock.exists() or lock.read_text().strip() != str(process.pid)

    def left_behind(self, namespace: str | None, name: str = "") -> set[tuple[str, str]]:
        """Runs whose supervisor has died: their pods are recorded as if they ran. Of one name, or of all."""
        pods = self._store.list_all("Pod", namespace, prefix=f"{name}-" if name else "")
        held = (pod for pod in pods if pod["metadata"].get("finalizers") and "status" in pod)
        runs = {(pod["metadata"]["namespace"], owner(pod)) for pod in held}
        return {run for run in runs if name in ("", run[1]) and not self.is_at_work(*run)}

    def is_at_work(self, namespace: str, name: str) -> bool:
        return is_held(self._layout.supervisor_lock(namespace, name))

    def frozen(self, namespace: str, name: str) -> int | None:
        """The process id of one that is at work and was stopped (SIGSTOP), as far as this machine tells: on Linux."""
        pid = holder(self._layout.supervisor_lock(namespace, name))
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
        except (FileNotFoundError, ProcessLookupError):  # it ended before it was looked at, or meanwhile
            return None
        return pid if state.split()[0] == "T" else None

    def have_ended(self, namespace: str, pod_name: str, container: str) -> bool:
        """Whether a container of a run's pod has ended, or nobody runs it anymore."""
        pod = self._store.get("Pod", namespace, pod_name)
        if pod is None or not self.is_at_work(namespace, owner(pod)):
            return True
        status = pod.get("status", {})
        states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        return any(state["name"] == container and "terminated" in state["state"] for state in states)

    def until_processes_are_gone(self, namespace: str, name: str) -> None:
        """For a run that was deleted. Raises WaitTimeoutError."""
        deadline = time.monotonic() + DELETION_SECONDS
        while self._is_unsettled(namespace, name):
            if time.monotonic() > deadline:
                raise WaitTimeoutError(
                    f"{name} is deleted, but its processes have not ended within {DELETION_SECONDS:.0f} s; "
                    f"see {self._layout.supervisor_log(namespace, name)}"
                )
            time.sleep(LOOK_SECONDS)

    def _is_unsettled(self, namespace: str, name: str) -> bool:
        pods = self._store.list_all("Pod", namespace, prefix=f"{name}-")
        if any(pod["metadata"].get("finalizers") for pod in pods if owner(pod) == name):
            return True
        run = self._store.get(RUN_KIND, namespace, name)
        return run is not None and not is_at_rest(run)

    def _start(self, namespace: str, name: str) -> None:
        log = self._layout.supervisor_log(namespace, name)
        program = [sys.executable, "-m", "rl_operator.process.supervise", str(self._layout.root), namespace, name]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            process = start_detached(program, self._layout.root, log)
        except OSError as error:
            raise TargetUnreachableError(f"cannot write {log}: {error.strerror}; free some space") from error
        self._started[(namespace, name)] = process


def is_at_rest(run: Manifest) -> bool:
    """Nothing will happen to the run until someone writes it: finished, stopped, or refused as it is."""
    status = run.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    if status.get("observedGeneration") != run["metadata"]["generation"]:
        return False
    true = {condition["type"] for condition in status.get("conditions", []) if condition["status"] == "True"}
    return bool(true & {"Suspended", "Stalled"})


def owner(pod: Manifest) -> str:
    """The name of the run that a pod belongs to. Raises GoneError."""
    owners = pod["metadata"].get("ownerReferences")
    if not owners:
        raise GoneError(f"pod {pod['metadata']['name']} belongs to no run")
    return str(owners[0]["name"])


@dataclass(frozen=True)
class LocalJobs:
    """The Jobs of a state folder. Files of a Job are beside those of its run's pods, and are deleted with them."""

    layout: Layout

    def create(self, job: JobObject, config_map: ConfigMapObject, environ: Mapping[str, str]) -> None:
        """Start all containers, or none: raises RefusedError naming the missing variable or program, and ConflictError
        if the name is taken.
        """
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        folder, spec = self.layout.pod(namespace, name), job["spec"]["template"]["spec"]
        try:
            folder.root.mkdir(parents=True)
        except FileExistsError:
            raise ConflictError(f"there is a Job {name} already") from None
        try:
            write_volumes(spec, folder, lambda _: config_map["data"])
            surroundings = Surroundings(folder, PodPorts({}), environ, Interpreters(self.layout, environ))
            launches = [plan_launch(container, surroundings, {}) for container in spec["containers"]]
            for launch in launches:
                make_room(launch)
            _write(folder, job)
        except (NotLaunchableError, OSError) as error:
            shutil.rmtree(folder.root, ignore_errors=True)
            raise RefusedError(f"the trial cannot be started: {error}") from error
        for launch in launches:
            lock = FileLock(folder.lock(launch.name))
            lock.take()
            work, log = folder.working_folder(launch.name), folder.log(launch.name)
            start_detached(launch.argv, work, log, dict(launch.env_vars), lock)

    def all(self, namespace: str) -> Iterator[JobObject]:
        for folder in self.layout.all_pod_folders:
            file = _file(PodFolder(folder))
            if folder.parent.name == namespace and file.is_file():
                job: JobObject = json.loads(file.read_text(encoding="utf-8"))
                yield job

    def pod(self, job: JobObject) -> JobPod:
        """A container runs while its process holds its lock."""
        name, folder = job["metadata"]["name"], self.layout.pod(job["metadata"]["namespace"], job["metadata"]["name"])
        names = [container["name"] for container in job["spec"]["template"]["spec"]["containers"]]
        containers = {each: JobContainer("running" if is_held(folder.lock(each)) else "ended") for each in names}
        return JobPod(name, containers, str(folder.log(names[0]).parent))


def _file(folder: PodFolder) -> Path:
    return folder.root / "job.json"


def _write(folder: PodFolder, job: JobObject) -> None:
    from rl_operator.status.observed.observation import format_time

    created = {"creationTimestamp": format_time(datetime.now(UTC))}
    _file(folder).write_text(json.dumps({**job, "metadata": {**job["metadata"], **created}}), encoding="utf-8")
