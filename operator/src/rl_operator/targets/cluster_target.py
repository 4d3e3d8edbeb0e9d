"""A cluster as a target: a few calls to the API server."""

import atexit
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cached_property
from typing import Any, Self

from rl_operator.api.catalog import Catalog
from rl_operator.api.environment import Environment
from rl_operator.api.kubernetes_objects import (
    ConfigMapObject,
    JobObject,
    Manifest,
    NetworkPolicyObject,
    OwnerReference,
    SelfSubjectReview,
    ServerVersion,
)
from rl_operator.api.names import DEFAULT_RUNTIME, ENVIRONMENT_KIND, MANAGER, RUN_KIND, RUN_LABEL
from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import METADATA_ONLY, ApiPath, ClusterClient, Held
from rl_operator.cluster.api_server.connection import ConnectionSettingsError, cluster_context, named
from rl_operator.cluster.api_server.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENVIRONMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    RUNS,
    RUNTIMES,
    SECRETS,
    Resource,
    all_of,
    find,
)
from rl_operator.documents.parse import parse_environment
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.operator_errors import ForbiddenError, GoneError, OperatorError, TargetUnreachableError
from rl_operator.render.catalog_and_history import stored_catalog
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.targets.cluster_rollouts import rollouts_of
from rl_operator.targets.target import JOB_NAME_LABEL, JobPod, Missing, Note, TargetHealth, job_pod
from rl_operator.targets.target_loop import LoopThread

FIELD_MANAGER = "rlctl"
_KINDS: Mapping[str, Resource[Any]] = {"ConfigMap": CONFIG_MAPS, ENVIRONMENT_KIND: ENVIRONMENTS}


class ClusterTarget:
    """Implements `target.Target` over the API server."""

    poll_seconds = 1.0
    usual_runtime = DEFAULT_RUNTIME
    runs_files = False

    def __init__(
        self, loop: LoopThread, client: ClusterClient, *, label: str, flags: str, namespace: str, note: Note
    ) -> None:
        self.label = label
        self.flags = flags
        self.namespace = namespace
        self.note = note
        self._loop = loop
        self._wait = loop.wait
        self._client = client

    @classmethod
    def open(cls, context: str, note: Note) -> Self:
        """Nothing is called yet. Raises TargetUnreachableError if the kubeconfig cannot be used."""
        loop, found = LoopThread(), cluster_context(context)
        try:
            client = loop.wait(ClusterClient.connect(context=context, middlewares=(named(FIELD_MANAGER),)))
        except ConnectionSettingsError as error:
            raise TargetUnreachableError(str(error)) from error
        atexit.register(lambda: loop.wait(client.__aexit__()))  # connections live as long as the process
        flags = f" --context {context}" if context else ""
        return cls(loop, client, label=f"cluster:{found.name}", flags=flags, namespace=found.namespace, note=note)

    def acting_as(self, token: str) -> Self:
        """The same cluster over the same connections, with the rights of this token and none of ours."""
        client = self._loop.wait(self._client.acting_as(token))
        return type(self)(
            self._loop, client, label=self.label, flags=self.flags, namespace=self.namespace, note=self.note
        )

    def close(self) -> None:
        """For one that acts for another user; the connections stay open."""
        self._loop.wait(self._client.__aexit__())

    @cached_property
    def caller(self) -> str:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = ApiPath[SelfSubjectReview]("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        answer = self._wait(self._client.create(path, review))
        return answer["status"]["userInfo"].get("username", "")

    def runs(self, namespace: str | None, selector: str) -> Iterator[Manifest]:
        token: str | None = None
        while token != "":
            chunk: list[Manifest] = []
            params = {"labelSelector": selector, "continue": token or ""}
            _, token = self._wait(self._client.chunk(RUNS.path(namespace), params, chunk.append))
            yield from chunk

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        """Runs' versions in the API server's cache, without specs and statuses."""
        found: dict[tuple[str, str], str] = {}

        def take(run: Manifest) -> None:
            metadata = run["metadata"]
            found[metadata["namespace"], metadata["name"]] = f"{metadata['uid']}/{metadata['resourceVersion']}"

        params: dict[str, str | int] = {"resourceVersion": "0"}
        self._wait(self._client.each(RUNS.path(namespace), params, take, METADATA_ONLY))
        return found

    def run(self, namespace: str, name: str) -> Manifest | None:
        return self._wait(find(self._client, RUNS, namespace, name))

    def create(self, manifest: Manifest) -> Manifest:
        return self._wait(self._client.create(RUNS.path(manifest["metadata"]["namespace"]), manifest))

    def change_spec(
        self,
        namespace: str,
        name: str,
        changes: Mapping[str, object],
        annotations: Mapping[str, str | None] | None = None,
        *,
        version: str = "",
    ) -> Manifest:
        notes = {"annotations": dict(annotations)} if annotations else {}
        metadata = notes | ({"resourceVersion": version} if version else {})
        body = {"spec": dict(changes)} | ({"metadata": metadata} if metadata else {})
        return self._wait(self._client.patch(RUNS.path(namespace, name), body))

    def apply(self, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        path = _KINDS[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        self._wait(self._client.apply(path, manifest, FIELD_MANAGER))

    def delete(self, namespace: str, name: str) -> None:
        run = self._wait(self._client.get(RUNS.path(namespace, name)))
        self._wait(self._client.delete(RUNS.path(namespace, name), run["metadata"]["uid"]))

    def look_after(self, namespace: str, name: str) -> None:
        """The operator does this."""

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        params: dict[str, str | int] = {"container": container}
        if tail is not None:
            params["tailLines"] = tail
        if follow:
            params["follow"] = "true"
        lines = self._client.lines(PODS.path(namespace, pod, "log"), params)
        try:
            while (line := self._wait(_next(lines))) is not None:
                yield line.decode("utf-8", "replace")
        except GoneError as error:
            raise GoneError(f"pod {namespace}/{pod} is gone, and its logs with it ({error})") from error

    def events(self, namespace: str, name: str, uid: str) -> list[str]:
        selector = f"regarding.kind={RUN_KIND},regarding.name={name},regarding.uid={uid}"
        items = self._list(EVENTS.path(namespace), {"fieldSelector": selector})
        ordered = sorted(items, key=lambda event: event["metadata"]["creationTimestamp"])
        return [
            f"{event['metadata']['creationTimestamp']}  {event['type']:<7}  {event['reason']:<20}  {event['note']}"
            for event in ordered
        ]

    def pod_names(self, namespace: str, run: str) -> list[str]:
        pods = self._list(PODS.path(namespace), {"labelSelector": f"{RUN_LABEL}={run}"})
        return [pod["metadata"]["name"] for pod in pods]

    def rollouts(self, run: TrainingRun, *, may_start: bool = True) -> RolloutSource:
        return rollouts_of(self._client, self._loop, run, self.note, may_start=may_start)

    def read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self._wait(find(self._client, _KINDS[kind], namespace, name))

    def runtimes(self) -> dict[str, Runtime]:
        return {item["metadata"]["name"]: Runtime.model_validate(item) for item in self._list(RUNTIMES.path(), {})}

    def catalog(self, runtime: Runtime) -> Catalog | None:
        reference = runtime.status.fields_ref
        if reference is None:
            return None
        try:
            config_map = self.read("ConfigMap", reference.namespace, reference.name)
        except ForbiddenError as error:
            self.note(f"the catalog that ships with rlctl is taken, because {error}")
            return bundled_catalog()
        stored = stored_catalog(config_map) if config_map else None
        return stored.found.catalog if stored else None

    def environments(self, namespace: str) -> list[Environment]:
        return [parse_environment(item) for item in self._list(ENVIRONMENTS.path(namespace), {})]

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        try:
            found = self._wait(self._client.get(NAMESPACES.path(name=namespace)))
        except (ForbiddenError, GoneError):
            return None
        return found["metadata"]["labels"]

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:  # noqa: ARG002 -- whatever the runtime
        return None

    def has_key(self, namespace: str, runtime: str, variable: str, secret: SecretKey) -> bool | None:  # noqa: ARG002 -- whatever the runtime
        """Its metadata shows that the Secret exists; its keys are not read."""
        try:
            self._wait(self._client.get(SECRETS.path(namespace, secret.name), accept=METADATA_ONLY))
        except GoneError:
            return False
        except ForbiddenError:
            return None
        return True

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:  # noqa: ARG002 -- they are in its images
        return ()

    def missing_packages(self, run: TrainingRun) -> tuple[Missing, ...]:  # noqa: ARG002 -- images hold all of them
        return ()

    def inference_provider(self, runtime: Runtime) -> InferenceProvider | None:
        return runtime.spec.inference

    def create_job(
        self, job: JobObject, config_map: ConfigMapObject, policy: NetworkPolicyObject | None = None
    ) -> None:
        """The ConfigMap comes last: the pod waits for it, so its policy is there before its code runs."""
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        created = self._wait(self._client.create(JOBS.path(namespace), job))
        uid = created["metadata"]["uid"]
        owner: OwnerReference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        try:
            if policy:
                walls: NetworkPolicyObject = {**policy, "metadata": {**policy["metadata"], "ownerReferences": [owner]}}
                self._wait(self._client.create(NETWORK_POLICIES.path(namespace), walls))
            owned: ConfigMapObject = {**config_map, "metadata": {**config_map["metadata"], "ownerReferences": [owner]}}
            self._wait(self._client.create(CONFIG_MAPS.path(namespace), owned))
        except OperatorError:
            with contextlib.suppress(OperatorError):  # without permission to delete, the pod waits for its deadline
                self._wait(self._client.delete(JOBS.path(namespace, name), uid))
            raise

    def jobs(self, namespace: str, selector: str) -> list[JobObject]:
        return self._list(JOBS.path(namespace), {"labelSelector": selector})

    def job_pod(self, job: JobObject) -> JobPod:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        return job_pod(job, self._list(PODS.path(namespace), {"labelSelector": f"{JOB_NAME_LABEL}={name}"}))

    def health(self) -> TargetHealth:
        server = self._wait(self._client.get(ApiPath[ServerVersion]("/version")))
        return TargetHealth({"kubernetes": server["gitVersion"]}, *self._operator())

    def _operator(self) -> tuple[str, tuple[Missing, ...]]:
        """As text, and what is missing: few callers may read all namespaces' Deployments."""
        try:
            found = self._list(DEPLOYMENTS.path(), {"labelSelector": f"app.kubernetes.io/name={MANAGER}"})
        except ForbiddenError:
            return "you may not list Deployments; that runs are looked at shows that it is there", ()
        ready = sum(each.get("status", {}).get("readyReplicas", 0) for each in found)
        wanted = sum(each["spec"].get("replicas", 1) for each in found)
        if not found:
            words = "no Deployment of it is in this cluster"
            return words, (Missing("operator", MANAGER, words, "install it: docs/how-to/install.md", needed=True),)
        where = found[0]["metadata"]["namespace"]
        words = f"{ready} of {wanted} replicas are ready in namespace {where}"
        how = f"kubectl -n {where} get pods says why none is ready"
        return words, () if ready else (Missing("operator", MANAGER, words, how, needed=True),)

    def _list(self, path: ApiPath[Held], params: Mapping[str, str | int]) -> list[Held]:
        return self._wait(all_of(self._client, path, params))


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    return await anext(lines, None)
