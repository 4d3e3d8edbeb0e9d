"""A target in memory, and runs in its wire form."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime, SecretKey
from rl_operator.api.training_run import TrainingRun
from rl_operator.documents.merge_patch import merged
from rl_operator.documents.parse import parse_environment, parse_run
from rl_operator.documents.shipped import bundled_catalog, bundled_runtimes
from rl_operator.programs import TINKER_SERVICE, ProgramMissingError, find_program
from rl_operator.targets.runs.run_lookup import parse_selector
from rl_operator.targets.target import Missing, TargetHealth


class MemoryTarget:
    """Implements `target.Target`."""

    label = "memory"
    flags = " --memory"
    namespace = "default"
    caller = "me"
    poll_seconds = 0.0
    usual_runtime = "tiny"

    def __init__(self, *runs: dict[str, Any], runs_files: bool = True) -> None:
        self.objects = {(run["metadata"]["namespace"], run["metadata"]["name"]): run for run in runs}
        self.others: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.looked_after: list[str] = []
        self.pods: list[str] = []
        self.notes: list[str] = []
        self.reads = 0
        self.keys: dict[str, bool | None] = {}
        self.packages: tuple[Missing, ...] = ()
        self.catalog_is_read = True
        self.runs_files = runs_files

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        matches = parse_selector(selector)
        found = [run for (place, _), run in self.objects.items() if namespace in (None, place)]
        return [run for run in found if matches(run["metadata"].get("labels", {}))]

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        found = (run["metadata"] for run in self.runs(namespace, ""))
        return {(each["namespace"], each["name"]): f"{each['uid']}/{each['resourceVersion']}" for each in found}

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        self.reads += 1
        return self.objects.get((namespace, name))

    def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        self.objects[metadata["namespace"], metadata["name"]] = dict(manifest)
        return dict(manifest)

    def change_spec(
        self,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        annotations: Mapping[str, str | None] | None = None,
        *,
        version: str = "",
    ) -> dict[str, Any]:
        run = self.objects[namespace, name]
        assert version in ("", run["metadata"]["resourceVersion"])
        run["spec"] = merged(run["spec"], changes)
        run["metadata"]["annotations"] = merged(run["metadata"].get("annotations", {}), annotations or {})
        return run

    def apply(self, manifest: Mapping[str, Any]) -> None:
        metadata = manifest["metadata"]
        self.others[manifest["kind"], metadata["namespace"], metadata["name"]] = dict(manifest)

    def delete(self, namespace: str, name: str) -> None:
        del self.objects[namespace, name]

    def look_after(self, namespace: str, name: str) -> None:
        self.looked_after.append(f"{namespace}/{name}")

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        yield from (f"{namespace}/{pod}/{container}\n", f"{tail} {follow}\n")

    def events(self, namespace: str, name: str, uid: str) -> list[str]:  # noqa: ARG002 -- nothing is deleted here
        return [f"{namespace}/{name} happened"]

    def pod_names(self, namespace: str, run: str) -> list[str]:
        assert (namespace, run) in self.objects
        return self.pods

    def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.others.get((kind, namespace, name))

    def runtimes(self) -> dict[str, Runtime]:
        return dict(bundled_runtimes())

    def catalog(self, runtime: Runtime) -> Catalog | None:
        assert runtime.metadata.name
        return bundled_catalog() if self.catalog_is_read else None

    def environments(self, namespace: str) -> list[Environment]:
        return [
            parse_environment(e) for (k, ns, _), e in self.others.items() if (k, ns) == ("RLEnvironment", namespace)
        ]

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        return {"kubernetes.io/metadata.name": namespace}

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        return {"TINKER_BASE_URL": "http://memory"} if runtime == "tiny" else None

    def has_key(self, namespace: str, runtime: str, variable: str, secret: SecretKey) -> bool | None:
        assert namespace, secret.name
        return runtime == "tiny" or self.keys.get(variable, False)

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:
        assert runtime
        return ()

    def missing_packages(self, run: TrainingRun) -> tuple[Missing, ...]:
        assert run.metadata.name
        return self.packages

    def health(self) -> TargetHealth:
        return TargetHealth({"memory": "1"}, "nobody is needed")


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


def without_the_service(program: str, path: str | None) -> str:
    """`find_program` where `tinker-service` is not installed."""
    if program == TINKER_SERVICE:
        raise ProgramMissingError(program)
    return find_program(program, path)
