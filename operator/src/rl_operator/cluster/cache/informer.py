"""LIST in chunks, then WATCH with bookmarks, then LIST again only if the API server requires it.

Unlike kopf's watch it notices what vanished while no watch was open: a list marks, and unmarked objects are swept.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.backoff import backoff, jittered
from rl_operator.cluster.api_server.client import ClusterClient, ExpiredError
from rl_operator.cluster.api_server.resources import Resource
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache, key_of
from rl_operator.operator_errors import OperatorError
from rl_operator.telemetry import WATCH_RESTARTS

log = logging.getLogger(__name__)

Held = TypeVar("Held", bound=KubernetesObject)
Value = TypeVar("Value")

MAX_PAUSE_SECONDS = 4.0
"""A recovered API server is noticed soon: eight watches that retry every few seconds are no load."""


class Informer(Generic[Held, Value]):
    """Keeps a store consistent with the API server and reports which run's children changed."""

    def __init__(
        self,
        client: ClusterClient,
        resource: Resource[Held],
        store: ResourceCache[Held, Value],
        changed: Callable[[Key], None],
        *,
        namespace: str | None = None,
        selector: str = "",
        accept: str = "application/json",
    ) -> None:
        self._client = client
        self._resource = resource
        self._store = store
        self._changed = changed
        self._path = resource.path(namespace)
        self._params = {"labelSelector": selector}
        self._accept = accept
        self._synced = asyncio.Event()
        self._version = ""

    @property
    def what(self) -> str:
        return self._resource.plural

    async def wait_synced(self) -> None:
        """Wait for the first complete list. The caller sets the deadline."""
        await self._synced.wait()

    async def run(self) -> None:
        """List and watch forever; ends only by cancellation."""
        failures = 0
        while True:
            try:
                await self._step()
                failures = 0
            except ExpiredError:
                # The next list makes up for the lost events.
                self._restart("expired", failures=0)
                self._version = ""
            except OperatorError as error:
                failures += 1
                self._restart(str(error), failures)
            await asyncio.sleep(pause_after(failures))

    async def _step(self) -> None:
        if not self._version:
            self._version = await self._list()
            self._synced.set()
        await self._watch()

    async def _list(self) -> str:
        listed: set[Key] = set()

        def take(document: Held) -> None:
            listed.add(key_of(document))
            self._put(document)

        version = await self._client.each(self._path, self._params, take, self._accept)
        for _, record in self._store.sweep(listed, int(version)):
            self._tell(record.run)
        return version

    async def _watch(self) -> None:
        params = {**self._params, "resourceVersion": self._version}
        async for event in self._client.watch(self._path, params, self._accept):
            document = event["object"]
            self._apply(event["type"], document)
            self._version = document["metadata"]["resourceVersion"]
            self._store.watched(int(self._version))

    def _apply(self, event_type: str, document: Held) -> None:
        if event_type in ("ADDED", "MODIFIED"):
            self._put(document)
        elif event_type == "DELETED" and self._store.remove(document):
            self._tell(self._store.run_of(document))

    def _put(self, document: Held) -> None:
        if self._store.put(document):
            self._tell(self._store.run_of(document))

    def _tell(self, run: Key | None) -> None:
        if run is not None:
            self._changed(run)

    def _restart(self, cause: str, failures: int) -> None:
        WATCH_RESTARTS.labels(self.what, "error" if failures else "expired").inc()
        # Once per outage: the retries report nothing new.
        log.log(logging.WARNING if failures == 1 else logging.DEBUG, "watch of %s: %s", self.what, cause)


def pause_after(failures: int) -> float:
    """Seconds before the next try: 0.1 to 0.3 normally, doubling with failures, jittered to avoid a thundering herd."""
    return jittered(backoff(failures + 1, 0.2, MAX_PAUSE_SECONDS), 0.5)
