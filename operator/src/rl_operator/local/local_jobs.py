"""A Job on this machine: its containers are processes that outlive the program that started them.

All of its files are in a folder next to those of the run's pods, and are deleted with them.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.programs.launch import Launch, NotLaunchableError, Surroundings, detach, make_room, plan_launch
from rl_operator.local.programs.ports import PodPorts
from rl_operator.local.state.layout import Layout, PodFolder
from rl_operator.local.state.locks import FileLock, is_held
from rl_operator.operator_errors import ConflictError, RefusedError

Manifest = dict[str, Any]


@dataclass(frozen=True)
class LocalJobs:
    """The Jobs of a state folder."""

    layout: Layout

    def create(self, job: Mapping[str, Any], config_map: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Start all containers, or none: raises RefusedError naming the missing variable or program, and ConflictError
        if the name is taken.
        """
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        folder, spec = self.layout.pod(namespace, name), job["spec"]["template"]["spec"]
        try:
            folder.root.mkdir(parents=True)
        except FileExistsError:
            raise ConflictError(f"there is a Job {name} already") from None
        try:
            _write_volumes(spec, config_map["data"], folder)
            surroundings = Surroundings(folder, PodPorts({}), environ, Interpreters(self.layout, environ))
            launches = [plan_launch(container, surroundings, {}) for container in spec["containers"]]
            for launch in launches:
                make_room(launch)
            _write(folder, job)
        except (NotLaunchableError, OSError) as error:
            shutil.rmtree(folder.root, ignore_errors=True)
            raise RefusedError(f"the trial cannot be started: {error}") from error
        for launch in launches:
            _start(launch)

    def all(self, namespace: str) -> Iterator[Manifest]:
        for folder in self.layout.all_pod_folders:
            file = _file(PodFolder(folder))
            if folder.parent.name == namespace and file.is_file():
                job: Manifest = json.loads(file.read_text(encoding="utf-8"))
                yield job

    def is_running(self, namespace: str, name: str, container: str) -> bool:
        return is_held(self.layout.pod(namespace, name).lock(container))


def _file(folder: PodFolder) -> Path:
    return folder.root / "job.json"


def _write(folder: PodFolder, job: Mapping[str, Any]) -> None:
    from rl_operator.status.observed.observation import format_time

    created = {"creationTimestamp": format_time(datetime.now(UTC))}
    _file(folder).write_text(json.dumps({**job, "metadata": {**job["metadata"], **created}}), encoding="utf-8")


def _write_volumes(spec: Mapping[str, Any], texts: Mapping[str, str], folder: PodFolder) -> None:
    """A folder for every volume; the ConfigMap's keys become files where its items say."""
    for volume in spec["volumes"]:
        root = folder.volume(volume["name"])
        root.mkdir(parents=True)
        for item in volume.get("configMap", {}).get("items", []):
            path = root / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[item["key"]], encoding="utf-8")


def _start(launch: Launch) -> None:
    """The process holds the lock of its container: held means that it is alive."""
    lock = FileLock(launch.lock)
    lock.take()
    with launch.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 -- the program of our own manifest
            launch.argv,
            cwd=launch.folder,
            env=dict(launch.env_vars),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
        )
    detach(process)
    lock.sign(process.pid)
    lock.give_back()
