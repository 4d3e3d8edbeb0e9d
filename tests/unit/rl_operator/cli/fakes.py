"""A back end in memory, and runs in its wire form."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_operator.api.bundled import bundled_catalogue, bundled_runtimes
from rl_operator.api.catalogue import Catalogue
from rl_operator.api.loading import parse_run
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import Runtime


class MemoryBackEnd:
    """Implements `backend.BackEnd`."""

    label = "memory"
    flags = " --memory"
    namespace = "default"
    poll_seconds = 0.0

    def __init__(self, *runs: dict[str, Any]) -> None:
        self.objects = {(run["metadata"]["namespace"], run["metadata"]["name"]): run for run in runs}
        self.looked_after: list[str] = []

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        assert not selector
        return [run for (place, _), run in self.objects.items() if namespace in (None, place)]

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((namespace, name))

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        self.objects[metadata["namespace"], metadata["name"]] = dict(manifest)
        return dict(manifest)

    def change_spec(self, namespace: str, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        run = self.objects[namespace, name]
        run["spec"] = {k: v for k, v in {**run["spec"], **changes}.items() if v is not None}
        return run

    def delete(self, namespace: str, name: str) -> None:
        del self.objects[namespace, name]

    def look_after(self, namespace: str, name: str) -> None:
        self.looked_after.append(f"{namespace}/{name}")

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        yield from (f"{namespace}/{pod}/{container}\n", f"{tail} {follow}\n")

    def events(self, namespace: str, name: str) -> list[str]:
        return [f"{namespace}/{name} happened"]

    def runtimes(self) -> dict[str, Runtime]:
        return bundled_runtimes()

    def catalogue(self) -> Catalogue:
        return bundled_catalogue()

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        return {"TINKER_BASE_URL": "http://memory"} if runtime == "tiny" else None


def run_manifest(name: str = "sorting", *, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name, "namespace": "default", "generation": 1, "resourceVersion": "1"},
        "spec": {"environment": "sort_digits", "runtime": "tiny"} | (spec or {}),
        "status": {"observedGeneration": 1} | status,
    }


def parsed(manifest: dict[str, Any]) -> TrainingRun:
    return parse_run(manifest)
