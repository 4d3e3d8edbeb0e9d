"""LIST in chunks, then WATCH with bookmarks, then LIST again only if the API server requires it.

Unlike kopf's watch it notices what vanished while no watch was open: a list marks, and unmarked objects are swept.
"""

import asyncio
import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Generic, TypeVar

from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.backoff import backoff, jittered
from rl_operator.cluster.api_server.client import JSON, ApiPath, ClusterClient, ExpiredError, Params
from rl_operator.cluster.api_server.resources import Resource
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache, key_of
from rl_operator.operator_errors import OperatorError
from rl_operator.telemetry import WATCH_RESTARTS

log = logging.getLogger(__name__)

Held = TypeVar("Held", bound=KubernetesObject)
Value = TypeVar("Value")

MAX_PAUSE_SECONDS = 4.0
"""A recovered API server is noticed soon: eight watches that retry every few seconds are no load."""


async def list_into(
    store: ResourceCache[Held, Value],
    client: ClusterClient,
    path: ApiPath[Held],
    changed: Callable[[Key], None],
    *,
    params: Params = MappingProxyType({}),
    accept: str = JSON,
) -> str:
    """Make a cache complete, and forget what vanished while no watch was open. Returns the list's version."""
    listed: set[Key] = set()

    def take(document: Held) -> None:
        listed.add(key_of(document))
        if store.put(document) and (key := store.run_of(document)):
            changed(key)

    version = await client.each(path, params, take, accept)
    for key in store.sweep(listed, int(version)):
        changed(key)
    return version


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
        accept: str = JSON,
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
            self._version = await list_into(
                self._store, self._client, self._path, self._changed, params=self._params, accept=self._accept
            )
            self._synced.set()
        await self._watch()

    async def _watch(self) -> None:
        params = {**self._params, "resourceVersion": self._version}
        async for event in self._client.watch(self._path, params, self._accept):
            if run := self._store.apply(event):
                self._changed(run)
            self._version = event["object"]["metadata"]["resourceVersion"]

    def _restart(self, cause: str, failures: int) -> None:
        WATCH_RESTARTS.labels(self.what, "error" if failures else "expired").inc()
        # Once per outage: the retries report nothing new.
        log.log(logging.WARNING if failures == 1 else logging.DEBUG, "watch of %s: %s", self.what, cause)


def pause_after(failures: int) -> float:
    """Seconds before the next try: 0.1 to 0.3 normally, doubling with failures, jittered to avoid a thundering herd."""
    return jittered(backoff(failures + 1, 0.2, MAX_PAUSE_SECONDS), 0.5)
