"""What the doors (rlctl, tools) need of a target."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # reading the kinds costs start-up time that not every command needs
    from rl_operator.api.catalog import Catalog
    from rl_operator.api.environment import Environment
    from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
    from rl_operator.targets.job_pods import JobPod

Manifest = dict[str, Any]
Note = Callable[[str], None]
"""Takes a sentence that the caller should know beside the answer."""


@dataclass(frozen=True)
class Missing:
    """What is not there, and how to supply it. `needed`: nothing can be trained without it."""

    what: str
    name: str
    why: str
    how: str
    needed: bool = False

    def to_wire(self) -> dict[str, str | bool]:
        return asdict(self)


@dataclass(frozen=True)
class TargetHealth:
    """What works for the runs of a target. `versions` by name; `operator`: who reconciles, and whether it is
    there.
    """

    versions: Mapping[str, str]
    operator: str
    missing: tuple[Missing, ...] = ()


class Target(Protocol):
    """A cluster, or this machine. Every method may raise `OperatorError`s."""

    label: str
    """Stands in every output: where the runs are."""

    flags: str
    """What a command line needs to reach this target again, with a leading space; may be empty."""

    namespace: str
    """Where runs are when nobody says otherwise."""

    poll_seconds: float

    usual_runtime: str
    """The runtime of commands that are told none."""

    runs_files: bool
    """Whether `environment: ./file.py` can be trained here."""

    note: Note

    @property
    def caller(self) -> str:
        """Who asks, as the target knows them: the API server's name of the user, or this machine's."""
        ...

    def runs(self, namespace: str | None, selector: str) -> list[Manifest]: ...

    def run(self, namespace: str, name: str) -> Manifest | None: ...

    def create(self, manifest: Mapping[str, Any]) -> Manifest: ...

    def change_spec(
        self,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        annotations: Mapping[str, str | None] | None = None,
        *,
        version: str = "",
    ) -> Manifest:
        """A merge patch of the spec (RFC 7396), and annotations; None removes what it stands for.

        Raises ConflictError when the run is no longer of that resourceVersion; without one whatever is there changes.
        """
        ...

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Create what a run needs beside it, or give it this content."""
        ...

    def delete(self, namespace: str, name: str) -> None: ...

    def look_after(self, namespace: str, name: str) -> None:
        """See to it that somebody reconciles the run."""
        ...

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        """A container's log, each line with its end; with `follow` until the container has ended."""
        ...

    def events(self, namespace: str, name: str) -> list[str]:
        """What happened to the run, one line each, oldest first."""
        ...

    def pod_names(self, namespace: str, run: str) -> list[str]:
        """The pods of a run that have logs, those of earlier attempts included."""
        ...

    def read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """A ConfigMap or an RLEnvironment."""
        ...

    def runtimes(self) -> "dict[str, Runtime]": ...

    def catalog(self, runtime: "Runtime") -> "Catalog | None":
        """The environments of the runtime's image; None: they are not read yet."""
        ...

    def environments(self, namespace: str) -> "list[Environment]":
        """The RLEnvironments of a namespace."""
        ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """None: the caller may not read them."""
        ...

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        """How to reach the Tinker service that this target runs itself for a runtime, started if need be; None: it
        runs none for this one.
        """
        ...

    def has_key(self, namespace: str, runtime: str, variable: str, secret: "SecretKey") -> bool | None:
        """Whether a run of that runtime would get the variable: from the Secret on a cluster, whose content nobody
        reads, from the caller's own variables on this machine. None: it cannot be looked at.
        """
        ...

    def inference_provider(self, runtime: "Runtime") -> "InferenceProvider | None":
        """Who answers when an environment is tried. Local mode: the runtime's, else what RL_INFERENCE_URL names."""
        ...

    def create_job(self, job: Mapping[str, Any], config_map: Mapping[str, Any]) -> None:
        """Create a Job and the ConfigMap of its name, which goes with it. Raises ConflictError: the name is taken."""
        ...

    def jobs(self, namespace: str, selector: str) -> list[Manifest]: ...

    def job_pod(self, job: Mapping[str, Any]) -> "JobPod": ...

    def health(self) -> TargetHealth:
        """Raises TargetUnreachableError where nothing answers."""
        ...
