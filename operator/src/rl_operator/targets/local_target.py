"""One machine as a target: it reads and writes the state folder.

Listing runs takes no model of a document: what does (200 ms of pydantic), and what talks HTTP, is imported where it is
used (`tests/unit/rl_operator/cli/test_start_up.py`).
"""

import contextlib
import errno
import getpass
import os
import platform
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rl_operator.api.kubernetes_objects import ConfigMapObject, JobObject, Manifest, NetworkPolicyObject
from rl_operator.api.names import NAMESPACE_NAME_LABEL, RUN_KIND
from rl_operator.documents.merge_patch import merged
from rl_operator.local.garbage_collection import collect_garbage, remove_traces
from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.state.layout import STATE_DIR_VARIABLE, Layout, default_state_folder
from rl_operator.local.state.pod_logs import follow_log, read_events, tail_log
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import RefusedError, TargetUnreachableError
from rl_operator.targets.local_processes import LocalJobs, Supervisors
from rl_operator.targets.runs.run_lookup import parse_selector
from rl_operator.targets.target import JobPod, Missing, Note, Target, TargetHealth

if TYPE_CHECKING:
    from rl_operator.api.catalog import Catalog
    from rl_operator.api.environment import Environment
    from rl_operator.api.runtime import InferenceProvider, Runtime, SecretKey
    from rl_operator.api.training_run import TrainingRun
    from rl_operator.rollouts.rollout_source import RolloutSource
    from rl_operator.targets.local_needs import LocalNeeds

SUCCESSOR_SECONDS = 20.0
"""How long to wait for a supervisor's first look at a run that it takes over: it imports for a second or two."""

SMALLEST_ROOM, SMALLEST_FILES = 64 * 1024, 16
"""Bytes and files that a few objects need."""


class LocalTarget:
    """Implements `target.Target` over a state folder."""

    namespace = "default"
    poll_seconds = 0.2
    usual_runtime = "tiny"
    runs_files = True

    def __init__(self, layout: Layout, flags: str, note: Note) -> None:
        self.label = f"local:{_short(layout.root)}"
        self.flags = flags
        self.note = note
        self.layout = layout
        self.interpreters = Interpreters(layout, os.environ)
        self._store = StateStore(layout)
        self._supervisors = Supervisors(self._store)
        self._known_as_frozen = set[tuple[str, str]]()

    @classmethod
    def open(cls, state_dir: Path | None, note: Note, *, asked: bool) -> Self:
        """`asked`: --local was given, so commands that we suggest carry it too."""
        root = state_dir.expanduser().absolute() if state_dir else default_state_folder()
        try:
            if root.exists() and not root.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
            if root.exists() and not os.access(root, os.R_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            _warn_when_full(root, note)
        except OSError as error:
            why = f"{error.strerror or error}; name another with --state-dir or RL_STATE_DIR"
            raise RefusedError(f"the state folder {root}: {why}") from None
        is_elsewhere = state_dir and not os.environ.get(STATE_DIR_VARIABLE)
        elsewhere = f" --state-dir {shlex.quote(str(root))}" if is_elsewhere else ""
        return cls(Layout(root), (" --local" if asked else "") + elsewhere, note)

    @property
    def caller(self) -> str:
        return getpass.getuser()

    def runs(self, namespace: str | None, selector: str) -> Iterator[Manifest]:
        matches = parse_selector(selector)
        with contextlib.suppress(TargetUnreachableError):  # a full disk must not prevent anyone from listing them
            collect_garbage(self._store, datetime.now(UTC), self.look_after)
        self._hear_successors(self._supervisors.left_behind(namespace))
        runs = self._store.list_all(RUN_KIND, namespace)
        return (run for run in runs if matches(run["metadata"].get("labels", {})))

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        return self._store.versions(RUN_KIND, namespace)

    def run(self, namespace: str, name: str) -> Manifest | None:
        if not self._supervisors.is_at_work(namespace, name):
            self._hear_successors(self._supervisors.left_behind(namespace, name))
        self._tell_if_frozen(namespace, name)
        return self._store.get(RUN_KIND, namespace, name)

    def _tell_if_frozen(self, namespace: str, name: str) -> None:
        """Once for each time that it is."""
        pid, run = self._supervisors.frozen(namespace, name), (namespace, name)
        if pid is None:
            self._known_as_frozen.discard(run)
        elif run not in self._known_as_frozen:
            self._known_as_frozen.add(run)
            self.note(f"The supervisor of {name} is frozen, so its status is old: `kill -CONT {pid}` lets it go on")

    def create(self, manifest: Manifest) -> Manifest:
        if not manifest["spec"].get("suspend"):
            self._needs.refuse_what_would_wait(manifest)
        created = self._store.create(manifest)
        self.look_after(created["metadata"]["namespace"], created["metadata"]["name"])
        return created

    def change_spec(
        self,
        namespace: str,
        name: str,
        changes: Mapping[str, object],
        annotations: Mapping[str, str | None] | None = None,
        *,
        version: str = "",
    ) -> Manifest:
        def change(manifest: Manifest) -> None:
            manifest["spec"] = merged(manifest["spec"], changes)
            manifest["metadata"]["annotations"] = merged(manifest["metadata"].get("annotations", {}), annotations or {})
            if "suspend" in changes and not changes["suspend"]:
                self._needs.refuse_what_would_wait(manifest)
            if "startTime" not in manifest.get("status", {}):
                manifest.pop("status", None)  # nothing tracks the files that it was checked with: check it again

        changed = self._store.update(RUN_KIND, namespace, name, change, resource_version=version)
        self.look_after(namespace, name)
        return changed

    def apply(self, manifest: Manifest) -> None:
        from rl_operator.local.model_runtimes import PLACE

        self._store.apply({**manifest, "metadata": {"namespace": PLACE, **manifest["metadata"]}})

    def delete(self, namespace: str, name: str) -> None:
        run = self._store.get(RUN_KIND, namespace, name)
        self._store.delete(RUN_KIND, namespace, name)
        self.look_after(namespace, name)
        self._supervisors.until_processes_are_gone(namespace, name)
        if run is not None:
            remove_traces(self.layout, namespace, name, run["metadata"]["uid"])

    def look_after(self, namespace: str, name: str) -> None:
        self._supervisors.look_after(namespace, name)

    def _hear_successors(self, runs: Iterable[tuple[str, str]]) -> None:
        """Runs whose supervisor has died have old statuses: start the next one, and wait until it has written."""
        waiting = {run: seen for run in runs if (seen := self._store.version(RUN_KIND, *run))}
        for run in waiting:
            self.look_after(*run)
        give_up = time.monotonic() + SUCCESSOR_SECONDS
        while waiting := {run: seen for run, seen in waiting.items() if self._store.version(RUN_KIND, *run) == seen}:
            if time.monotonic() > give_up:
                names = ", ".join(sorted(name for _, name in waiting))
                self.note(f"The supervisor of {names} has died and the next one has not looked yet: its status is old")
                return
            time.sleep(self.poll_seconds / 4)

    def log_lines(self, namespace: str, pod: str, container: str, *, tail: int | None, follow: bool) -> Iterator[str]:
        path = self.layout.pod(namespace, pod).log(container)
        if not follow:
            return tail_log(path, tail)
        return follow_log(path, tail, ended=lambda: self._supervisors.have_ended(namespace, pod, container))

    def events(self, namespace: str, name: str, uid: str) -> list[str]:
        events = read_events(self.layout.events(namespace, name))
        own = (event for event in events if event.run_uid == uid)
        return [f"{event.time}  {event.kind:<7}  {event.reason:<20}  {event.message}" for event in own]

    def pod_names(self, namespace: str, run: str) -> list[str]:
        manifest = self._store.get(RUN_KIND, namespace, run)
        uid = manifest["metadata"]["uid"] if manifest else ""
        return [path.name for path in self.layout.pod_folders(namespace, run, uid)]

    def rollouts(self, run: "TrainingRun", *, may_start: bool = True) -> "RolloutSource":
        from rl_operator.targets.local_needs import RolloutFolder

        del may_start  # they are read without one
        namespace, name = run.key
        if run.status.start_time is None:
            raise RefusedError(f"run {name} of {self.label} has not started, so it has no rollouts yet")
        return RolloutFolder(self.layout.rollouts(namespace, name, run.metadata.uid))

    def read(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self._store.get(kind, namespace, name)

    def runtimes(self) -> "dict[str, Runtime]":
        return self._needs.runtimes()

    def catalog(self, runtime: "Runtime") -> "Catalog | None":  # noqa: ARG002 -- all run what is installed here
        return self._needs.catalog()

    def environments(self, namespace: str) -> "list[Environment]":
        return self._needs.environments(namespace)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {NAMESPACE_NAME_LABEL: namespace}

    def tinker_env_vars(self, runtime: str) -> Mapping[str, str] | None:
        return self._needs.tinker_env_vars(runtime)

    def has_key(self, namespace: str, runtime: str, variable: str, secret: "SecretKey") -> bool:  # noqa: ARG002 -- of this machine
        return self._needs.has_key(runtime, variable)

    def missing_programs(self, runtime: str) -> tuple[Missing, ...]:
        return self._needs.missing_programs(runtime)

    def missing_packages(self, run: "TrainingRun") -> tuple[Missing, ...]:
        return self._needs.missing_packages(run)

    def inference_provider(self, runtime: "Runtime") -> "InferenceProvider | None":
        from rl_operator.targets.local_needs import inference_provider

        return inference_provider(runtime)

    def create_job(
        self,
        job: JobObject,
        config_map: ConfigMapObject,
        policy: NetworkPolicyObject | None = None,  # noqa: ARG002 -- this machine has none
    ) -> None:
        LocalJobs(self.layout).create(job, config_map, os.environ)

    def jobs(self, namespace: str, selector: str) -> list[JobObject]:
        matches = parse_selector(selector)
        return [job for job in LocalJobs(self.layout).all(namespace) if matches(job["metadata"]["labels"])]

    def job_pod(self, job: JobObject) -> JobPod:
        return LocalJobs(self.layout).pod(job)

    def health(self) -> TargetHealth:
        operator = "every run has a supervisor of its own here"
        return TargetHealth({"python": platform.python_version()}, operator)

    @property
    def _needs(self) -> "LocalNeeds":
        from rl_operator.targets.local_needs import LocalNeeds

        return LocalNeeds(self._store)


def _warn_when_full(root: Path, note: Note) -> None:
    """No status of a run would report it: it cannot be written."""
    if not root.exists():
        return
    usage, disk = shutil.disk_usage(root), os.statvfs(root)
    no_files = disk.f_files > 0 and disk.f_favail < SMALLEST_FILES  # some file systems do not count them
    if usage.free >= SMALLEST_ROOM and not no_files:
        return
    written = max((file.stat().st_mtime for file in root.glob("objects/**/*.json")), default=0)
    since = f", nothing was written since {datetime.fromtimestamp(written, UTC):%H:%M} UTC" if written else ""
    megabytes = f"{usage.free // 10**6} of {usage.total // 10**6} MB"
    room = (f"{disk.f_favail} of {disk.f_files} files" if no_files else megabytes) + f" free{since}"
    note(f"No room is left in {root} ({room}): runs wait or train unobserved, and continue by themselves when there is")


def _short(path: Path) -> str:
    """`~/…` if it is in the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


Shown = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Shows the progress of installing something."""


def install_requirements(target: Target, run: "TrainingRun", beside: Sequence[Manifest], shown: Shown) -> bool:
    """Returns whether something was installed. Nothing is on a cluster: images are the way there.

    Raises RefusedError, with what went wrong.
    """
    from rl_operator.api.environment import is_own
    from rl_operator.local.own_environments import requirements_of
    from rl_operator.targets.inputs.file_inputs import FileInputs

    if not (isinstance(target, LocalTarget) and is_own(run.spec.environment)):
        return False
    text = requirements_of(run, FileInputs(target, beside).read)
    if text is None or target.interpreters.of_requirements(text).marker is not None:
        return False
    with shown(f"the requirements.txt of {run.spec.environment}") as progress:
        return target.interpreters.install_requirements(text, progress)
