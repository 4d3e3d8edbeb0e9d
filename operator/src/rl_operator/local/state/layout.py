"""Where things are in the state folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STATE_DIR_VARIABLE = "RL_STATE_DIR"


def default_state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`$RL_STATE_DIR`, else `$XDG_STATE_HOME/rl-operator`, else `~/.local/state/rl-operator`."""
    if chosen := environ.get(STATE_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "rl-operator"


@dataclass(frozen=True, slots=True)
class Layout:
    """The state folder's paths. Nothing is created here."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def service(self) -> Path:
        """The Tinker service of the bundled model: its port, key, log and checkpoints."""
        return self.root / "tinker-service"

    def service_of(self, runtime: str) -> Path:
        """The service of the runtime's own model."""
        return self.root / "tinker-services" / runtime

    @property
    def interpreters(self) -> Path:
        """Virtual environments for environments that need packages of their own: `…/NAME/BUILD`."""
        return self.root / "interpreters"

    @property
    def tools_token(self) -> Path:
        """The token for the tools' HTTP server, unless a token file was named."""
        return self.root / "tools-token"

    def events(self, namespace: str, run_name: str) -> Path:
        return self.root / "events" / namespace / f"{run_name}.jsonl"

    def supervisor_lock(self, namespace: str, run_name: str) -> Path:
        return self.root / "supervisors" / namespace / f"{run_name}.lock"

    def supervisor_log(self, namespace: str, run_name: str) -> Path:
        return self.root / "supervisors" / namespace / f"{run_name}.log"

    def clock(self, namespace: str, run_name: str) -> Path:
        """When this run's supervisors ran, and the jumps of the clock that they saw."""
        return self.root / "supervisors" / namespace / f"{run_name}.clock"

    def pod_folders(self, namespace: str, run_name: str, run_uid: str) -> tuple[Path, ...]:
        return tuple((self.root / "pods" / namespace).glob(f"{run_name}-{run_uid[:5]}-*"))

    @property
    def all_pod_folders(self) -> tuple[Path, ...]:
        """The folders of all runs' pods: `…/NAMESPACE/POD`."""
        return tuple((self.root / "pods").glob("*/*"))

    @property
    def all_events(self) -> tuple[Path, ...]:
        """The event files of all runs: `…/NAMESPACE/RUN.jsonl`."""
        return tuple((self.root / "events").glob("*/*.jsonl"))

    def rollouts(self, namespace: str, run_name: str, run_uid: str) -> Path:
        return self.pod(namespace, f"{run_name}-{run_uid[:5]}-1").rollouts

    def pod(self, namespace: str, pod_name: str) -> "PodFolder":
        return PodFolder(self.root / "pods" / namespace / pod_name)


@dataclass(frozen=True, slots=True)
class PodFolder:
    """The files that one attempt leaves on disk."""

    root: Path

    @property
    def wandb(self) -> Path:
        """Where W&B keeps what has not been uploaded yet: the next attempt uploads the rest."""
        return self._of_all_attempts("wandb")

    @property
    def rollouts(self) -> Path:
        """Where the trainer keeps rollouts, a file per step and attempt."""
        return self._of_all_attempts("rollouts")

    def _of_all_attempts(self, what: str) -> Path:
        return self.root.with_name(f"{self.root.name.rpartition('-')[0]}-{what}")

    def volume(self, name: str) -> Path:
        return self.root / "volumes" / name

    def log(self, container: str) -> Path:
        return self.root / "logs" / f"{container}.log"

    def termination_message(self, container: str) -> Path:
        return self.root / "termination" / container

    def lock(self, container: str) -> Path:
        """Held by the container's process itself: held means that it is alive."""
        return self.root / "running" / f"{container}.lock"

    def interpreter(self, container: str) -> Path:
        """Names the virtual environment that the container's program is started from; absent: ours."""
        return self.root / "running" / f"{container}.interpreter"

    @property
    def locks(self) -> tuple[Path, ...]:
        """One per container that was ever started here."""
        return tuple(sorted((self.root / "running").glob("*.lock")))

    def working_folder(self, container: str) -> Path:
        return self.root / "work" / container
