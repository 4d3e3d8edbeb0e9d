"""Runs one pod's containers as a kubelet does: sidecars first and last, the others together, probes, grace periods."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from rl_operator.api.kubernetes_objects import Container, ContainerStateObject, PodObject
from rl_operator.api.names import TRAINER_CONTAINER
from rl_operator.backoff import backoff
from rl_operator.local.pods.container_process import KILL_DEADLINE_SECONDS, ContainerProcess
from rl_operator.local.pods.pod_status import PodEnd, PodRecords, Report, running, terminated, waiting
from rl_operator.local.programs.launch import (
    Launch,
    NotLaunchableError,
    PodPorts,
    Surroundings,
    make_room,
    plan_launch,
    unwritable,
)
from rl_operator.local.programs.leash import Leash
from rl_operator.operator_errors import OperatorError
from rl_operator.status.observed.observation import CRASHING

IMPATIENT_SECONDS = 0.2
"""Until a container first responds, it is probed this often: on one machine that costs nothing."""

Answers = Callable[["Probe"], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Probe:
    """`period` and `timeout` in seconds; after this many failures in a row the container has failed the probe."""

    url: str
    period: float
    timeout: float
    failure_threshold: int


def read_probe(container: Container, kind: Literal["startupProbe", "readinessProbe"], ports: PodPorts) -> Probe | None:
    """None: the container has none of that kind."""
    probe = container.get(kind)
    if probe is None:
        return None
    get, period = probe["httpGet"], float(probe.get("periodSeconds", 10))
    named = {port["name"]: port["containerPort"] for port in container.get("ports", []) if "name" in port}
    asked = get["port"]
    port = ports.of(container["name"], named[asked] if isinstance(asked, str) else asked)
    return Probe(
        url=f"http://127.0.0.1:{port}{get.get('path', '/')}",
        period=period,
        timeout=float(probe.get("timeoutSeconds", 1)),
        failure_threshold=probe.get("failureThreshold", 3),
    )


async def watch_readiness(answers: Answers, probe: Probe, report: Callable[[bool], None]) -> None:
    """Report every change, forever; its owner cancels it when the container ends. As in a kubelet, one success makes a
    container ready, and only as many failures in a row as the probe says make it unready: a busy machine is slow.
    """
    was_ready, failures = False, 0
    while True:
        passed = await answers(probe)
        failures = 0 if passed else failures + 1
        ready = passed or (was_ready and failures < probe.failure_threshold)
        if ready != was_ready:
            was_ready = ready
            report(ready)
        await asyncio.sleep(probe.period if ready else min(probe.period, IMPATIENT_SECONDS))


TICK_SECONDS = 1.0


async def run_for(
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Sleep until this process has run for so long. While it was frozen, so were those that it waits for."""
    while seconds > 0:
        begun = clock()
        await sleep(min(seconds, TICK_SECONDS))
        seconds -= min(clock() - begun, 2 * TICK_SECONDS)


RESTART_SECONDS, MAX_RESTART_SECONDS = 1.0, 30.0
"""A sidecar that ended is restarted after this time, then after twice as long, …"""

RETRY_SECONDS = 5.0
"""How soon a failed creation of a container is retried."""

Prepare = Callable[[], Surroundings]
"""Makes the pod's folders. May raise OSError and OperatorError."""

Know = Callable[[Mapping[str, str]], None]

BackendVariables = Callable[[Know], Awaitable[Mapping[str, str]]]
"""The variables that point a trainer at its backend, once that responds; they may be known earlier, so that the trainer
can load meanwhile. May raise OperatorError.
"""


class PodWorker:
    """One pod from its creation to its end. `run` is its whole life; `stop` asks it to end normally."""

    def __init__(
        self,
        pod: PodObject,
        prepare: Prepare,
        backend: BackendVariables,
        *,
        leash: Leash,
        session: aiohttp.ClientSession,
        report: Report,
    ) -> None:
        self._spec = pod["spec"]
        self._prepare = prepare
        self._backend = backend
        self._leash = leash
        self._session = session
        self._sidecars = list(self._spec.get("initContainers", []))
        self._regular = list(self._spec["containers"])
        self._records = PodRecords(self._spec, report)
        self._processes: dict[str, ContainerProcess] = {}
        self._stopping = asyncio.Event()
        self._closing = False
        self._end: PodEnd | None = None
        self._killing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until every container has ended and the last status is reported."""
        self._records.publish()
        self._known_backend: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._finding_backend = asyncio.create_task(self._find_backend(), name="backend")
        keepers: dict[str, asyncio.Task[None]] = {}
        deadline = asyncio.create_task(self._enforce_deadline())
        try:
            await self._prepare_folders()
            for sidecar in self._sidecars:
                keepers[sidecar["name"]] = asyncio.create_task(self._keep_running(sidecar))
                await self._until_started(sidecar)
            async with asyncio.TaskGroup() as group:
                for container in self._regular:
                    group.create_task(self._run_once(container), name=container["name"])
        finally:
            deadline.cancel()
            self._finding_backend.cancel()
            await self._stop_sidecars(keepers)
            if self._killing:
                self._killing.cancel()
            self._records.tell_the_end(self._end)

    def stop(self, end: PodEnd | None = None) -> None:
        """Ask the regular containers to end (SIGTERM; SIGKILL after the grace period), the sidecars after them."""
        if self._stopping.is_set():
            return
        self._end = end
        self._stopping.set()
        for container in self._regular:
            if process := self._processes.get(container["name"]):
                process.terminate()
        self._killing = asyncio.create_task(self._kill_regular(), name="grace")

    async def _prepare_folders(self) -> None:
        """Waits for free disk space, and reports it."""
        while not self._stopping.is_set():
            try:
                self._surroundings = self._prepare()
            except (OSError, OperatorError) as error:
                why = unwritable(error) if isinstance(error, OSError) else str(error)
                self._records.all_wait("CreateContainerError", why)
                await self._pause()
            else:
                return

    # --- regular containers -------------------------------------------------------------------------------------
    async def _run_once(self, container: Container) -> None:
        launch = await self._plan(container)
        if launch is None or self._stopping.is_set():
            self._records.never_started(container["name"])
            return
        state = await self._run_process(container, launch)
        self._records.put(container["name"], state)

    async def _run_process(self, container: Container, launch: Launch) -> ContainerStateObject:
        """Start the process, watch its readiness, wait for its end."""
        name = launch.name
        try:
            process = await ContainerProcess.start(launch, self._leash.hold, self._leash.release)
        except OSError as error:
            return terminated(128, "StartError", f"cannot execute {launch.argv[0]}: {error.strerror}")
        self._processes[name] = process
        ports = self._surroundings.ports
        # Without a probe it is ready when it has started.
        readiness = read_probe(container, "readinessProbe", ports) or read_probe(container, "startupProbe", ports)
        self._records.put(name, running(process.started), ready=readiness is None)
        watch = asyncio.create_task(self._watch(name, readiness)) if readiness else None
        if self._stopping.is_set() and container in self._regular:
            process.terminate()
        try:
            return await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            self._processes.pop(name)
            if watch:
                watch.cancel()

    async def _watch(self, name: str, probe: Probe) -> None:
        def report(ready: bool) -> None:
            self._records.put(name, self._records[name], ready=ready)

        await watch_readiness(self._answers, probe, report)

    # --- sidecars -----------------------------------------------------------------------------------------------
    async def _keep_running(self, sidecar: Container) -> None:
        """Restart a sidecar whenever it ends, until this task is cancelled."""
        failures = 1
        while (launch := await self._plan(sidecar)) is not None:
            begun = time.monotonic()
            state = await self._run_process(sidecar, launch)
            if self._closing:
                self._records.put(sidecar["name"], state)
                return
            pause = backoff(failures, RESTART_SECONDS, MAX_RESTART_SECONDS)
            self._records.restart(sidecar["name"], waiting(CRASHING, f"it starts again in {pause:.0f} s"), state)
            await asyncio.sleep(pause)
            lived = time.monotonic() - begun
            failures = 1 if lived > MAX_RESTART_SECONDS else failures + 1

    async def _until_started(self, sidecar: Container) -> None:
        """Wait until the startup probe passes. A sidecar that takes too long is ended, and so restarted."""
        if self._stopping.is_set() or (probe := read_probe(sidecar, "startupProbe", self._surroundings.ports)) is None:
            return
        late = asyncio.create_task(self._end_when_late(sidecar["name"], probe))
        try:
            while not self._stopping.is_set() and not await self._answers(probe):
                await asyncio.sleep(IMPATIENT_SECONDS)
        finally:
            late.cancel()

    async def _end_when_late(self, sidecar: str, probe: Probe) -> None:
        while True:
            await run_for(probe.period * probe.failure_threshold)
            if process := self._processes.get(sidecar):
                process.kill()

    async def _stop_sidecars(self, keepers: Mapping[str, asyncio.Task[None]]) -> None:
        """In reverse order; each within the grace period."""
        self._closing = True
        self._stopping.set()
        for name, keeper in reversed(list(keepers.items())):
            if process := self._processes.get(name):
                process.terminate()
                grace = asyncio.create_task(run_for(self._grace))
                await asyncio.wait({keeper, grace}, return_when=asyncio.FIRST_COMPLETED)
                grace.cancel()
                process.kill()
                await asyncio.wait({keeper}, timeout=KILL_DEADLINE_SECONDS)
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        for sidecar in self._sidecars:
            if "terminated" not in self._records[sidecar["name"]]:
                self._records.never_started(sidecar["name"])

    # --- both ---------------------------------------------------------------------------------------------------
    async def _plan(self, container: Container) -> Launch | None:
        """How to start a container; waits while something from the caller is missing. None: the pod is stopping."""
        backend = await self._backend_of(container)
        while not self._stopping.is_set():
            try:
                launch = plan_launch(container, self._surroundings, backend)
                make_room(launch)
            except NotLaunchableError as error:
                self._records.put(container["name"], waiting(error.reason, str(error)))
            else:
                return launch
            await self._pause()
        return None

    async def _pause(self) -> None:
        """Sleep for RETRY_SECONDS, or until the pod is stopping."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)

    async def _find_backend(self) -> None:
        """A backend that does not start ends the pod, also if the trainer runs already."""
        try:
            self._know_backend(await self._backend(self._know_backend))
        except (OSError, OperatorError) as error:
            self.stop(PodEnd("BackendNotStarted", str(error), "BackendNotStarted"))

    def _know_backend(self, variables: Mapping[str, str]) -> None:
        if not self._known_backend.done():
            self._known_backend.set_result(variables)

    async def _backend_of(self, container: Container) -> Mapping[str, str]:
        """Only a container that uses the backend needs to know where it is; the others load meanwhile."""
        if container["name"] != TRAINER_CONTAINER:
            return {}
        stopping = asyncio.create_task(self._stopping.wait())
        ends: set[asyncio.Future[Any]] = {self._known_backend, self._finding_backend, stopping}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._finding_backend.done():
            self._finding_backend.result()  # raises an internal error
        return self._known_backend.result() if self._known_backend.done() else {}

    async def _answers(self, probe: Probe) -> bool:
        """One request; 2xx and 3xx pass."""
        try:
            async with self._session.get(probe.url, timeout=aiohttp.ClientTimeout(total=probe.timeout)) as response:
                return response.status < 400
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    @property
    def _grace(self) -> float:
        return float(self._spec.get("terminationGracePeriodSeconds", 30))

    async def _kill_regular(self) -> None:
        await run_for(self._grace)
        for container in self._regular:
            if process := self._processes.get(container["name"]):
                process.kill()

    async def _enforce_deadline(self) -> None:
        if (seconds := self._spec.get("activeDeadlineSeconds")) is not None:
            await run_for(seconds)
            self.stop(PodEnd("DeadlineExceeded", f"The pod was active longer than its {seconds} s."))
