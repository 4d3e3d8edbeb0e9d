"""The supervisor of one local run: the same reconcile as on a cluster, over a folder and processes.

The caller that needs the run starts it detached: `python -m rl_operator.process.supervise STATE_FOLDER NAMESPACE NAME`.
It outlives its caller, its containers do not outlive it, and it ends when there is nothing left to do for its run.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from rl_operator.api.names import RUN_KIND, TRAINER_CONTAINER
from rl_operator.file_discovery import discover_files
from rl_operator.local.garbage_collection import remove_expired
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.local_run_client import LocalRunClient, pods_of
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.local.pods.kubelet import KUBELET_FINALIZER, Kubelet
from rl_operator.local.pods.pod_lifecycle import Know
from rl_operator.local.programs.leash import Leash
from rl_operator.local.service import LOOK_SECONDS as SERVICE_LOOK_SECONDS
from rl_operator.local.service import TinkerService
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import FileLock
from rl_operator.local.state.state_store import StateStore
from rl_operator.local.state.watched_clock import WatchedClock
from rl_operator.metrics.metrics_source import PolledMetrics
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.operator_errors import ConflictError, GoneError, OperatorError, TargetUnreachableError
from rl_operator.reconcile.reconcile import ReconcilePace, reconcile, soonest
from rl_operator.reconcile.run_client import Key

PACE = ReconcilePace(backoff_seconds=2.0, progress_seconds=1.0)
POLL_SECONDS = 0.5
LOOK_SECONDS = 0.2
"""How often the run's file is checked for changes by rlctl, and the clock for jumps."""

TROUBLE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Supervisor:
    """One run's loop. Everything it knows is in the store: it may be killed at any moment."""

    def __init__(
        self,
        store: StateStore,
        key: Key,
        kubelet: Kubelet,
        client: LocalRunClient,
        changed: asyncio.Event,
        *,
        clock: WatchedClock,
    ) -> None:
        self._store = store
        self._key = key
        self._kubelet = kubelet
        self._client = client
        self._changed = changed
        self._clock = clock
        self._seen = self._version()

    async def run(self, lock: FileLock, ended: asyncio.Event) -> None:
        """Run until there is nothing left to do (the lock is released then) or `ended` is set."""
        look = asyncio.create_task(self._look_for_writes(), name="look")
        try:
            while not ended.is_set():
                self._changed.clear()
                self._seen = self._version()
                # Processes follow what is written, even while nothing new can be written.
                delay = soonest(await self._attempt(self._reconcile), await self._attempt(self._sync))
                if (delay is None or self._finished()) and self._settled() and self._retire(lock):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), delay)
        finally:
            look.cancel()
            await self._kubelet.close()

    async def _reconcile(self) -> float | None:
        return await reconcile(self._key, self._client, self._clock.now, PACE, self._clock.gaps)

    async def _sync(self) -> None:
        self._kubelet.sync(pods_of(self._store, self._key))

    async def _attempt(self, step: Callable[[], Awaitable[float | None]]) -> float | None:
        """Seconds until the next look."""
        try:
            return await step()
        except (ConflictError, GoneError):
            return 0.0
        except OperatorError as error:
            logger.warning("%s", error)
            return TROUBLE_SECONDS
        except Exception:  # the loop's edge: an internal error must not kill the containers
            logger.exception("%s failed; it is tried again in %.0f s", step.__name__, TROUBLE_SECONDS)
            return TROUBLE_SECONDS

    async def _look_for_writes(self) -> None:
        """Our own writes count, too: what a reconcile wrote may be what the next one acts on."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._clock.look()
            if self._version() != self._seen:
                self._changed.set()

    def _finished(self) -> bool:
        """Nothing waits here until it expires: every command that lists runs removes expired ones."""
        run = self._client.run(self._key)
        return run is not None and run.status.finished

    def _settled(self) -> bool:
        """No processes, no pod that waits for the supervisor, and nothing that the last reconcile has not seen.

        What `sync` has just found may require the next attempt: that a pod was lost with its supervisor.
        """
        pods = pods_of(self._store, self._key)
        awaited = any(KUBELET_FINALIZER in pod["metadata"].get("finalizers", []) for pod in pods)
        return not (self._kubelet.busy or awaited or self._changed.is_set())

    def _retire(self, lock: FileLock) -> bool:
        """Release the lock unless something was written meanwhile: every later writer starts a new supervisor."""
        with self._store.exclusive():
            if self._version() != self._seen:
                return False
            lock.give_back()
            return True

    def _version(self) -> str | None:
        return self._store.version(RUN_KIND, *self._key)


async def supervise(layout: Layout, key: Key, caller: Mapping[str, str]) -> None:
    """Take care of one run until there is nothing left to do. Returns at once if another supervisor does."""
    lock = FileLock(layout.supervisor_lock(*key))
    if not lock.take():
        return
    lock.sign(os.getpid())
    store, changed, ended = StateStore(layout), asyncio.Event(), asyncio.Event()
    clock = WatchedClock(layout.clock(*key))

    def end() -> None:
        ended.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    with contextlib.suppress(TargetUnreachableError):  # it can wait until there is space
        remove_expired(store, clock.now())
    async with aiohttp.ClientSession() as session:
        with Leash() as leash:
            backend = _SharedTinkerService(store, caller, session)
            kubelet = Kubelet(store, caller=caller, backend=backend, leash=leash, session=session, changed=changed.set)
            poller = TrainerPoller(
                lambda: client.pods(key),
                lambda _: changed.set(),
                interval_seconds=POLL_SECONDS,
                ops_url=lambda pod: kubelet.trainer_url(pod.uid),
            )
            own, interpreters = OwnEnvironments(store.get, discover_files), Interpreters(layout, caller)
            client = LocalRunClient(store, own, PolledMetrics(poller), interpreters)
            beside = [
                asyncio.create_task(poller.run(), name="poll"),
                asyncio.create_task(backend.keep(lambda: kubelet.busy), name="keep the service"),
            ]
            await Supervisor(store, key, kubelet, client, changed, clock=clock).run(lock, ended)
            for task in beside:
                task.cancel()


class _SharedTinkerService:
    """Points trainers at the Tinker service of their model, where this machine serves it."""

    def __init__(self, store: StateStore, caller: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._store = store
        self._caller = caller
        self._session = session
        self._used: TinkerService | None = None

    async def keep(self, wanted: Callable[[], bool]) -> None:
        """Make sure that the service is alive while a trainer uses it and `wanted` says so; forever."""
        while self._used is None:
            await asyncio.sleep(SERVICE_LOOK_SECONDS)
        await self._used.keep(wanted)

    async def __call__(self, pod: Mapping[str, Any], know: Know) -> Mapping[str, str]:
        if all(container["name"] != TRAINER_CONTAINER for container in pod["spec"]["containers"]):
            return {}
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        run = self._store.get(RUN_KIND, pod["metadata"]["namespace"], owner)
        runtime = run["spec"].get("runtime", "") if run else ""
        service = TinkerService.of_runtime(self._store, runtime, self._caller, self._session)
        if service is None:
            return {}
        await service.until_it_can_start()
        address = await service.ensure(lambda starting: know(starting.env_vars()))
        self._used = service
        return address.env_vars()


def main(arguments: list[str]) -> None:
    os.umask(0o077)  # what a run writes, and its processes inherit, is its user's alone
    state_folder, namespace, name = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    asyncio.run(supervise(Layout(Path(state_folder)), (namespace, name), os.environ))


if __name__ == "__main__":
    main(sys.argv[1:])
