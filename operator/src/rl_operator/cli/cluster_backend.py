"""rlctl's side of a cluster: a few calls to the API server, one after the other."""

import asyncio
import atexit
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rl_operator.cluster.client import ClusterClient
from rl_operator.cluster.connection import ConnectionSettingsError
from rl_operator.cluster.context import cluster_context
from rl_operator.cluster.resources import EVENTS, PODS, RUNS, RUNTIMES
from rl_operator.errors import BackEndUnreachableError, GoneError

if TYPE_CHECKING:
    from rl_operator.api.catalogue import Catalogue
    from rl_operator.api.runtime import Runtime

Manifest = dict[str, Any]
Answer = TypeVar("Answer")


class ClusterBackEnd:
    """Implements `backend.BackEnd` over the API server."""

    poll_seconds = 1.0

    def __init__(self, runner: asyncio.Runner, client: ClusterClient, context: str, *, asked: bool) -> None:
        found = cluster_context(context)
        self.label = f"cluster:{found.name}"
        self.flags = f" --context {context}" if asked else ""
        self.namespace = found.namespace
        self._runner = runner
        self._client = client

    @classmethod
    def open(cls, context: str) -> Self:
        """Nothing is called yet. Raises BackEndUnreachableError when the kubeconfig cannot be used."""
        runner = asyncio.Runner()
        try:
            client = runner.run(ClusterClient.connect(context=context))
        except ConnectionSettingsError as error:
            raise BackEndUnreachableError(str(error)) from error

        def close() -> None:
            runner.run(client.__aexit__())
            runner.close()

        atexit.register(close)  # a command is a process: its connections live as long as it does
        return cls(runner, client, context, asked=bool(context))

    def runs(self, namespace: str | None, selector: str) -> list[Manifest]:
        return self._list(RUNS.path(namespace), {"labelSelector": selector})

    def run(self, namespace: str, name: str) -> Manifest | None:
        try:
            return self._wait(self._client.get(RUNS.path(namespace, name)))
        except GoneError:
            return None

    def create(self, manifest: Mapping[str, Any]) -> Manifest:
        return self._wait(self._client.create(RUNS.path(manifest["metadata"]["namespace"]), manifest))

    def change_spec(self, namespace: str, name: str, changes: Mapping[str, Any]) -> Manifest:
        return self._wait(self._client.patch(RUNS.path(namespace, name), {"spec": dict(changes)}))

    def delete(self, namespace: str, name: str) -> None:
        run = self._wait(self._client.get(RUNS.path(namespace, name)))
        self._wait(self._client.delete(RUNS.path(namespace, name), run["metadata"]["uid"]))

    def look_after(self, namespace: str, name: str) -> None:
        """The operator does."""

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        params: dict[str, str | int] = {"container": container}
        if tail is not None:
            params["tailLines"] = tail
        if follow:
            params["follow"] = "true"
        lines = self._client.lines(PODS.path(namespace, pod, "log"), params)
        while (line := self._wait(_next(lines))) is not None:
            yield line.decode("utf-8", "replace")

    def events(self, namespace: str, name: str) -> list[str]:
        items = self._list(
            EVENTS.path(namespace), {"fieldSelector": f"regarding.kind=RLTrainingRun,regarding.name={name}"}
        )
        ordered = sorted(items, key=lambda event: event["metadata"]["creationTimestamp"])
        return [
            f"{event['metadata']['creationTimestamp']}  {event['type']:<7}  {event['reason']:<20}  {event['note']}"
            for event in ordered
        ]

    def runtimes(self) -> "dict[str, Runtime]":
        from rl_operator.api.runtime import Runtime

        return {item["metadata"]["name"]: Runtime.model_validate(item) for item in self._list(RUNTIMES.path(), {})}

    def catalogue(self) -> "Catalogue":
        from rl_operator.api.bundled import bundled_catalogue

        return bundled_catalogue()

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:  # noqa: ARG002 -- whatever the runtime
        return None

    def _list(self, path: str, params: Mapping[str, str | int]) -> list[Manifest]:
        items: list[Manifest] = []
        self._wait(self._client.each(path, params, items.append))
        return items

    def _wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(call)


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    return await anext(lines, None)
