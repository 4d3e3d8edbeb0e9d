"""The supervisors of local runs, from rlctl's side: whether one is needed, and how it is started."""

import subprocess
import sys
import time
from typing import Final

from rl_operator.api.names import RUN_KIND
from rl_operator.local.programs.launch import detach
from rl_operator.local.state.locks import is_held
from rl_operator.local.state.state_store import Manifest, StateStore
from rl_operator.operator_errors import GoneError, TargetUnreachableError, WaitTimeoutError

DELETION_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.2


class Supervisors:
    """At most one per run; its lock shows whether it is alive."""

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

    def is_at_work(self, namespace: str, name: str) -> bool:
        return is_held(self._layout.supervisor_lock(namespace, name))

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
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            raise TargetUnreachableError(f"cannot write {log}: {error.strerror}; free some space") from error
        with output:
            process = subprocess.Popen(  # noqa: S603 -- our own module
                [sys.executable, "-m", "rl_operator.process.supervise", str(self._layout.root), namespace, name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._layout.root,
                start_new_session=True,
            )
        detach(process)
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
