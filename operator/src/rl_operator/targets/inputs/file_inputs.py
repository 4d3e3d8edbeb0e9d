"""What a run's file is checked against and rendered from, read from a target; the file's own objects come first. And
which runtime and environment a name means there.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rl_operator.api.catalog import Catalog, CatalogEnvironment
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import ConfigMapObject, Manifest
from rl_operator.api.names import ENVIRONMENT_KIND, NAMESPACE_NAME_LABEL, OWN_PREFIX, RUNTIME_KIND
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import ChosenEnvironment, RunInputs
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.name_lists import unknown_environment
from rl_operator.check.openenv_rules import server_faults
from rl_operator.check.run_check import check_run, runtime_not_found
from rl_operator.documents.parse import DocumentError, parse_environment, parse_run, parse_runtime
from rl_operator.documents.shipped import openenv_environment
from rl_operator.file_discovery import discover_files
from rl_operator.local.own_environments import OwnEnvironments
from rl_operator.operator_errors import ForbiddenError, RefusedError
from rl_operator.reconcile.inputs import gather_inputs
from rl_operator.reconcile.run_client import Key
from rl_operator.render.manifests import Rendered, render_run
from rl_operator.status.kind_status import environment_status, look_at_server
from rl_operator.targets.inputs.parameters import plain_run
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs, with_file
from rl_operator.targets.target import Target
from rl_operator.targets.target_loop import run_sync


def choose_runtime(target: Target, name: str) -> Runtime:
    """The runtime of that name; without one the target's default, or the only one.

    Raises RefusedError naming the existing ones.
    """
    runtimes, wanted = target.runtimes(), name or target.usual_runtime
    if not name and len(runtimes) == 1:
        [wanted] = runtimes
    if wanted not in runtimes:
        raise RefusedError(runtime_not_found(plain_run("any", wanted), runtimes).sentence)
    return runtimes[wanted]


def known_environment(target: Target, name: str, runtime: Runtime, namespace: str) -> CatalogEnvironment:
    """What `spec.environment: NAME` would mean there. Raises RefusedError if it means nothing."""
    run = with_file(plain_run(name, runtime.metadata.name, namespace), Path.cwd(), target)
    inputs = required_inputs(run, FileInputs(target))
    if inputs.environment.known is None:
        raise RefusedError(_why_not(name, inputs.environment, target))
    return inputs.environment.known


def _why_not(name: str, chosen: ChosenEnvironment, target: Target) -> str:
    if chosen.pending is not None:
        return chosen.pending[1]
    stalled = chosen.own.status.condition("Stalled") if chosen.own else None
    if stalled is not None:
        return f"environment {name}: {stalled.message}"
    if name.endswith(".py"):
        return f"{target.label} trains no files: {name} becomes an RLEnvironment with rlctl init --from {name}"
    if chosen.absence is not None:
        return f"environment {name}: {chosen.absence}"
    return f"there is no environment {name!r} in {target.label}{unknown_environment(name, chosen.available)[0]}"


class FileInputs:
    """Implements `reconcile.run_client.InputSource`: live reads, each of them a blocking call.

    Gathering is asynchronous, because another program reads an own environment's code. `inputs_of` runs it to its end
    in its own loop.
    """

    def __init__(self, target: Target, beside: Sequence[Manifest] = ()) -> None:
        self.target = target
        self._beside = {_identity(document): document for document in beside}
        self._own = OwnEnvironments(self.read, discover_files)
        self.labels_are_read = True

    def run(self, key: Key) -> TrainingRun | None:
        manifest = self.target.run(*key)
        return parse_run(manifest) if manifest else None

    async def read_run(self, key: Key) -> TrainingRun | None:
        return self.run(key)

    def runtime(self, name: str) -> Runtime | None:
        document = self._beside.get((RUNTIME_KIND, "", name))
        return parse_runtime(document) if document else self.target.runtimes().get(name)

    def runtime_names(self) -> tuple[str, ...]:
        own = {name for kind, _, name in self._beside if kind == RUNTIME_KIND}
        return tuple(sorted(own | set(self.target.runtimes())))

    def catalog(self, runtime: Runtime) -> Catalog | None:
        return self.target.catalog(runtime)

    async def environment(self, run: TrainingRun) -> Environment | None:
        """Read here if the code is available; on a cluster, what the operator has read from it."""
        name, namespace = run.spec.environment, run.metadata.namespace
        if self.target.runs_files:
            return await self._own.of_run(run)
        if not name.startswith(OWN_PREFIX):
            return None
        name = name.removeprefix(OWN_PREFIX)
        document = self._beside.get((ENVIRONMENT_KIND, namespace, name))
        if document and "source" in document["spec"]:
            return await self._own.named(namespace, name)
        if document and "openenv" in document["spec"]:
            return _of_server(parse_environment(document))
        live = document or self.target.read(ENVIRONMENT_KIND, namespace, name)
        return parse_environment(live) if live else None

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        labels = self.target.namespace_labels(namespace)
        self.labels_are_read = labels is not None
        return {NAMESPACE_NAME_LABEL: namespace} if labels is None else labels

    async def read_config_map(self, namespace: str, name: str) -> ConfigMapObject | None:
        try:
            return self.read("ConfigMap", namespace, name)
        except ForbiddenError as error:
            self.target.note(str(error))
            return None

    def files(self, environment: Environment) -> Mapping[str, str] | None:
        return run_sync(self._own.files(environment))

    def read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self._beside.get((kind, namespace, name)) or self.target.read(kind, namespace, name)


def inputs_of(run: TrainingRun, source: FileInputs) -> RunInputs | None:
    """None if the run's runtime does not exist."""
    inputs = run_sync(gather_inputs(run, source, datetime.now(UTC)))
    if inputs and inputs.runtime.spec.namespace_selector is not None and not source.labels_are_read:
        namespace, runtime = run.metadata.namespace, run.spec.runtime
        hint = f"you may not read the labels of namespace {namespace}, by which runtime {runtime} chooses"
        source.target.note(f"{hint}: only its name is taken into account")
    return inputs


def required_inputs(run: TrainingRun, source: FileInputs) -> RunInputs:
    """Raises DocumentError if the run's runtime does not exist."""
    inputs = inputs_of(run, source)
    if inputs is None:
        raise DocumentError(runtime_not_found(run, source.runtime_names()))
    return inputs


def judged(run: TrainingRun, source: FileInputs) -> tuple[RunInputs | None, tuple[Refusal, ...]]:
    """With every reason why the run would not start; inputs None: its runtime does not exist, which is refused."""
    try:
        inputs = required_inputs(run, source)
    except DocumentError as error:
        return None, error.refusals
    return inputs, check_run(run, inputs)


def check_file(file: RunFile, target: Target) -> tuple[tuple[Refusal, ...], tuple[str, str] | None]:
    """Every reason why the run would not start there; reason and sentence of what it would wait for."""
    file = as_it_runs(file, target)
    inputs, refusals = judged(file.run, FileInputs(target, file.beside))
    return refusals, inputs.environment.pending if inputs else None


def render_file(file: RunFile, target: Target) -> Rendered:
    """What would be rendered for the run. Raises DocumentError if it is refused, RefusedError if it would wait."""
    file = as_it_runs(file, target)
    source = FileInputs(target, file.beside)
    inputs, refusals = judged(file.run, source)
    if inputs is None or refusals:
        raise DocumentError(*refusals)
    if inputs.environment.pending:
        raise RefusedError(inputs.environment.pending[1])
    own = inputs.environment.own
    return render_run(file.run, inputs, source.files(own) if own else None)


def _of_server(environment: Environment) -> Environment:
    """What the operator will say of an RLEnvironment of an OpenEnv server: there is nothing to be read."""
    look = look_at_server(environment, tuple(server_faults(environment, local=False)), openenv_environment())
    return environment.with_changes(status=environment_status(environment, look, datetime.now(UTC)))


def _identity(document: Manifest) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", "") if document["kind"] != RUNTIME_KIND else "", metadata["name"]
