"""What rlctl and tools need from a target. Its Jobs are pods whose containers wait, run and end, each with a log."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from rl_operator.api.kubernetes_objects import (
    ConfigMapObject,
    ContainerStateObject,
    JobObject,
    Manifest,
    NetworkPolicyObject,
    ObjectCondition,
    PodObject,
    PodStatus,
    TerminatedState,
    WaitingState,
)

if TYPE_CHECKING:  # importing the kinds costs start-up time that not every command needs
    from rl_operator.api.catalog import Catalog
    from rl_operator.api.environment import Environment
    from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
    from rl_operator.api.training_run import TrainingRun
    from rl_operator.rollouts.rollout_source import RolloutSource

JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"


@dataclass(frozen=True)
class JobContainer:
    """`reason`: why it waits, or how it ended, if there is something to report."""

    state: Literal["waiting", "running", "ended"]
    reason: str = ""


@dataclass(frozen=True)
class JobPod:
    """The newest pod of a Job. `name` None: there is none, yet or anymore. `folder`: its logs, on this machine."""

    name: str | None = None
    containers: Mapping[str, JobContainer] = field(default_factory=dict)
    folder: str = ""


def job_pod(job: JobObject, pods: Iterable[PodObject]) -> JobPod:
    """From the API server's object."""
    newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
    names = [container["name"] for container in job["spec"]["template"]["spec"]["containers"]]
    if newest is None:
        return JobPod(None, dict.fromkeys(names, _without_pod(job)))
    status = newest.get("status", {})
    states = {each["name"]: each["state"] for each in status.get("containerStatuses", [])}
    return JobPod(newest["metadata"]["name"], {name: _container(states.get(name, {}), status) for name in names})


def _without_pod(job: JobObject) -> JobContainer:
    conditions = job.get("status", {}).get("conditions", [])
    over = next(
        (each for each in conditions if each["type"] in ("Failed", "Complete") and each["status"] == "True"), None
    )
    return JobContainer("ended", _said(over)) if over else JobContainer("waiting", "its pod is not there yet")


def _container(state: ContainerStateObject, status: PodStatus) -> JobContainer:
    if "running" in state:
        return JobContainer("running")
    if ended := state.get("terminated"):
        return JobContainer(
            "ended", f"exited ({ended['exitCode']}) {_said(ended)}".rstrip() if ended["exitCode"] else ""
        )
    if status.get("phase") in ("Failed", "Succeeded"):
        return JobContainer("ended", _said(status))
    unmet = [each for each in status.get("conditions", []) if each["status"] == "False"]
    return JobContainer("waiting", _said(state.get("waiting") or (unmet[0] if unmet else {})))


def _said(state: TerminatedState | WaitingState | ObjectCondition | PodStatus) -> str:
    return ": ".join(part for part in (state.get("reason"), state.get("message")) if part)


Note = Callable[[str], None]
"""Receives a sentence that the caller should know in addition to the result."""


CARE_SECONDS: Final = 2.0
"""How often those that wait for a run make sure that it is being reconciled: `Target.look_after`."""


@dataclass(frozen=True)
class Missing:
    """What is missing, and how to supply it. `needed`: nothing can be trained without it."""

    what: str
    name: str
    why: str
    how: str
    needed: bool = False

    def to_wire(self) -> dict[str, str | bool]:
        return asdict(self)


def how_to_supply(target: "Target", namespace: str, variable: str, secret: "SecretKey") -> str:
    """A key that is missing: from the caller's variables on this machine, from a Secret on a cluster."""
    if target.runs_files:
        return f"export {variable}=… where this is called from"
    return f"kubectl -n {namespace} create secret generic {secret.name} --from-literal={secret.key}=…"


@dataclass(frozen=True)
class TargetHealth:
    """The programs that serve the runs of a target. `versions` by name; `operator`: what reconciles, and whether it is
    running.
    """

    versions: Mapping[str, str]
    operator: str
    missing: tuple[Missing, ...] = ()


class Target(Protocol):
    """A cluster, or this machine. Every method may raise `OperatorError`s."""

    label: str
    """Part of every output: where the runs are."""

    flags: str
    """What a command line needs to reach this target again, with a leading space; may be empty."""

    namespace: str
    """The namespace of runs, unless another is given."""

    poll_seconds: float

    usual_runtime: str
    """The runtime of commands that name none."""

    runs_files: bool
    """Whether `environment: ./file.py` can be trained here."""

    note: Note

    @property
    def caller(self) -> str:
        """The caller, as the target knows it: the API server's name of the user, or this machine's."""
        ...

    def runs(self, namespace: str | None, selector: str) -> Iterable[Manifest]:
        """To be gone through once: they may be read meanwhile, as a thousand are 20 MiB."""
        ...

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        """By namespace and name, what changes whenever a run does. Costs a small part of what `runs` does."""
        ...

    def run(self, namespace: str, name: str) -> Manifest | None: ...

    def create(self, manifest: Manifest) -> Manifest: ...

    def change_spec(
        self,
        namespace: str,
        name: str,
        changes: Mapping[str, object],
        annotations: Mapping[str, str | None] | None = None,
        *,
        version: str = "",
    ) -> Manifest:
        """A merge patch of the spec (RFC 7396), and annotations; None removes the one of that name.

        Raises ConflictError if the run no longer has that resourceVersion; without one, any version is changed.
        """
        ...

    def apply(self, manifest: Manifest) -> None:
        """Create an object that a run needs, or update its content."""
        ...

    def delete(self, namespace: str, name: str) -> None: ...

    def look_after(self, namespace: str, name: str) -> None:
        """Make sure that the run is being reconciled."""
        ...

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        """A container's log, each line with its end; with `follow` until the container has ended."""
        ...

    def events(self, namespace: str, name: str, uid: str) -> list[str]:
        """What happened to the run, one line each, oldest first; nothing of a deleted run that had its name."""
        ...

    def pod_names(self, namespace: str, run: str) -> list[str]:
        """The pods of a run that have logs, including those of earlier attempts."""
        ...

    def rollouts(self, run: "TrainingRun", *, may_start: bool = True) -> "RolloutSource":
        """Where its rollouts are. Raises an OperatorError that says why there are none, and what to do; PodNeededError
        if a pod would have to be started to read them, and `may_start` is false.
        """
        ...

    def read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A ConfigMap or an RLEnvironment."""
        ...

    def runtimes(self) -> "dict[str, Runtime]": ...

    def catalog(self, runtime: "Runtime") -> "Catalog | None":
        """The environments of the runtime's image; None: they have not been read yet."""
        ...

    def environments(self, namespace: str) -> "list[Environment]": ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """None: the caller may not read them."""
        ...

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        """How to reach the Tinker service that this target itself runs for a runtime, started if necessary; None: it
        runs none for this one.
        """
        ...

    def has_key(self, namespace: str, runtime: str, variable: str, secret: "SecretKey") -> bool | None:
        """Whether a run of that runtime would get the variable: from the Secret on a cluster, whose content is not
        read, from the caller's own variables on this machine. None: it cannot be checked.
        """
        ...

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:
        """What must be installed on this machine before a run of that runtime can train; nothing for a cluster."""
        ...

    def missing_packages(self, run: "TrainingRun") -> tuple[Missing, ...]:
        """What the requirements.txt beside its environment lists and nobody has installed; nothing for a cluster."""
        ...

    def inference_provider(self, runtime: "Runtime") -> "InferenceProvider | None":
        """The provider for trying an environment. Local mode: the runtime's, else the one at RL_INFERENCE_URL."""
        ...

    def create_job(
        self, job: JobObject, config_map: ConfigMapObject, policy: NetworkPolicyObject | None = None
    ) -> None:
        """Create a Job and the ConfigMap of its name, deleted together. Raises ConflictError: the name is taken."""
        ...

    def jobs(self, namespace: str, selector: str) -> list[JobObject]: ...

    def job_pod(self, job: JobObject) -> "JobPod": ...

    def health(self) -> TargetHealth:
        """Raises TargetUnreachableError if nothing responds."""
        ...
