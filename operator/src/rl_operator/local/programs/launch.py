"""How a container of a pod's manifest becomes a process: program, arguments, variables, folders, and free ports: a pod
has its own network on a cluster; here every run shares the machine's.
"""

import errno
import itertools
import random
import re
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_contract.env_vars import (
    RL_API_URL,
    RL_INFERENCE_URL,
    RL_LOG_FORMAT,
    RL_OPENENV_PORT,
    RL_OPS_HOST,
    RL_OPS_PORT,
    RL_ROLLOUTS_DIR,
    WANDB_BASE_URL,
    WANDB_DIR,
    WANDB_MODE,
)
from rl_contract.processes import API_PORT, INFERENCE_PORT, OPS_PORTS
from rl_operator.api.kubernetes_objects import Container, EnvVar, PodSpec
from rl_operator.api.names import OPENENV_CONTAINER, TRAINER_CONTAINER
from rl_operator.local.interpreters.interpreter import PROGRAM, used_file
from rl_operator.local.interpreters.interpreters import Interpreters, within
from rl_operator.local.state.layout import PodFolder
from rl_operator.local.state.locks import FileLock
from rl_operator.local.state.state_store import private
from rl_operator.operator_errors import RefusedError
from rl_operator.programs import find_program

LISTENING_PORTS = range(20_000, 32_768)
"""Below those that the kernel gives to outgoing connections (from 32,768 on Linux, from 49,152 on macOS): a process
that listens seconds later, or again after a crash, would find one of those taken.
"""
DRAWN = 100
"""How many ports are tried for each that is wanted."""


@dataclass(frozen=True, slots=True)
class PodPorts:
    """From the ports of the contract to the ports of this machine."""

    actual: Mapping[int, int]
    openenv: int = 0
    """Where the OpenEnv server of an environment's pod listens; 0: the pod has none."""

    def of(self, container: str, port: int) -> int:
        """Where the container serves what its manifest names that port."""
        return self.openenv if container == OPENENV_CONTAINER else self.actual[port]

    def ops_url(self, container: str) -> str:
        return f"http://127.0.0.1:{self.actual[OPS_PORTS[container]]}"

    def env_vars(self, container: str) -> dict[str, str]:
        """Where a container serves and finds the others; all on loopback. Empty for one that is not part of a run."""
        if container == OPENENV_CONTAINER:
            return {"PORT": str(self.openenv)}
        if container not in OPS_PORTS:
            return {}
        server = {RL_OPENENV_PORT: str(self.openenv)} if self.openenv else {}
        return server | {
            RL_API_URL: f"http://127.0.0.1:{self.actual[API_PORT]}",
            RL_INFERENCE_URL: f"http://127.0.0.1:{self.actual[INFERENCE_PORT]}",
            RL_OPS_HOST: "127.0.0.1",
            RL_OPS_PORT: str(self.actual[OPS_PORTS[container]]),
        }


def choose_ports(run: PodPorts | None = None, *, openenv: bool = False) -> PodPorts:
    """Free ports, one for each port of the contract.

    `run`: the ports of the run's own pod, for an environment in a separate pod. The data ports are there. `openenv`:
    the pod has an OpenEnv server, whose own port may be any.
    """
    wanted = (API_PORT, INFERENCE_PORT, *OPS_PORTS.values())
    shared = {port: run.actual[port] for port in (API_PORT, INFERENCE_PORT)} if run else {}
    *free, server = free_ports(len(wanted) + 1)
    return PodPorts(dict(zip(wanted, free, strict=True)) | shared, openenv=server if openenv else 0)


def free_ports(count: int) -> tuple[int, ...]:
    """Different ones, drawn at random: other runs draw, too. Raises OSError if nearly all are taken."""
    drawn = random.SystemRandom().sample(LISTENING_PORTS, min(DRAWN * count, len(LISTENING_PORTS)))
    free = tuple(itertools.islice(filter(is_free, drawn), count))
    if len(free) < count:
        raise OSError(
            errno.EADDRINUSE, f"nearly all ports from {LISTENING_PORTS[0]} to {LISTENING_PORTS[-1]} are taken"
        )
    return free


def is_free(port: int, *, again: bool = False) -> bool:
    """Whether a server may listen there. `again`: also if connections of an earlier one still end."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, again)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|VIRTUAL_ENV|PYTHON\w+|LD_LIBRARY_PATH|DYLD_\w+|OMP_NUM_THREADS|CUDA_\w+"
    rf"|{RL_LOG_FORMAT}|HF_HOME|HF_HUB_\w+|HF_ENDPOINT|XDG_CACHE_HOME|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?:https?|no|all)_proxy"
    r"|(?:HTTPS?|NO|ALL)_PROXY"
)
"""The machine's variables that a process needs. All others are withheld: keys reach only containers that name them."""

TRACKER_WISHES = (WANDB_MODE, WANDB_BASE_URL)
"""Whether W&B may be reached, and which server: the caller's key must not go
elsewhere. For the trainer; what the run or its runtime says about the server takes precedence.
"""


class NotLaunchableError(Exception):
    """The container cannot be created yet. `reason` is Kubernetes' term."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Launch:
    name: str
    argv: tuple[str, ...]
    env_vars: Mapping[str, str]
    folder: PodFolder
    falls_back_to_logs: bool
    interpreter: Path | None
    """The virtual environment of the program, if it is not ours."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the containers of one pod share."""

    folder: PodFolder
    ports: PodPorts
    caller: Mapping[str, str]
    interpreters: Interpreters


def plan_launch(container: Container, surroundings: Surroundings, backend: Mapping[str, str]) -> Launch:
    """`backend` overrides the container's own variables (the shared Tinker service).

    Raises NotLaunchableError if a variable of the caller or the program is missing.
    """
    name, folder = container["name"], surroundings.folder
    mounts = mounted_paths(container, folder)
    caller = surroundings.caller
    ports = surroundings.ports.env_vars(name)
    own: dict[str, str | None] = {}
    for each in container.get("env", []):
        own[each["name"]] = backend.get(each["name"]) or _value(each, caller, {**own, **ports})
    mapped = {key: map_paths(value, mounts) for key, value in own.items() if value is not None}
    folders: dict[str, str] = {}
    if name == TRAINER_CONTAINER:
        folders = {key: value for key, value in caller.items() if key in TRACKER_WISHES}
        folders |= {WANDB_DIR: str(folder.wandb), RL_ROLLOUTS_DIR: str(folder.rollouts)}
    if "/tmp" in mounts:  # noqa: S108 -- a path inside the pod
        folders["TMPDIR"] = mounts["/tmp"]  # noqa: S108 -- the same
    words = (*container.get("command", ()), *container.get("args", ()))
    command = [expanded(word, {**own, **ports}) for word in words]
    arguments = [map_paths(word, mounts) for word in command[1:]]  # the program itself is this machine's
    is_environment = command[0] == PROGRAM and arguments[:1] == ["environment"]
    try:
        interpreter = surroundings.interpreters.build_for(arguments[1]) if is_environment else None
        program = interpreter / "bin" / PROGRAM if interpreter else find_program(command[0], caller.get("PATH"))
    except RefusedError as error:
        raise NotLaunchableError("CreateContainerError", str(error)) from None
    inherited = within(interpreter, passed_on(caller)) if interpreter else passed_on(caller)
    return Launch(
        name=name,
        argv=(str(program), *arguments),
        env_vars={**inherited, "PYTHONUNBUFFERED": "1", **folders, **mapped, **ports},
        folder=folder,
        falls_back_to_logs=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        interpreter=interpreter,
    )


def make_room(launch: Launch) -> None:
    """Make the container's folders and an empty termination message. Raises NotLaunchableError if that fails."""
    name, folder = launch.name, launch.folder
    message, lock = folder.termination_message(name), folder.lock(name)
    try:
        for each in (folder.working_folder(name), folder.log(name).parent, lock.parent, message.parent):
            each.mkdir(parents=True, exist_ok=True)
        lock.touch()
        message.write_bytes(b"")
        if launch.interpreter:
            folder.interpreter(name).write_text(str(launch.interpreter), encoding="utf-8")
            used_file(launch.interpreter).touch()
    except OSError as error:
        raise NotLaunchableError("CreateContainerError", unwritable(error)) from None


def unwritable(error: OSError) -> str:
    """What is wrong with the state folder, and what to do."""
    return f"cannot write {error.filename or 'in the state folder'}: {error.strerror}; it continues when there is room"


def passed_on(caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables that every process gets. Downloaded tokenizers are shared with the caller."""
    passed = {key: value for key, value in caller.items() if PASSED_ON.fullmatch(key)}
    cache = {"HF_HOME": str(Path(caller["HOME"]) / ".cache" / "huggingface")} if "HOME" in caller else {}
    return cache | passed


def mounted_paths(container: Container, folder: PodFolder) -> dict[str, str]:
    """From paths inside the pod to paths on this machine."""
    mounts = {
        mount["mountPath"].rstrip("/"): str(folder.volume(mount["name"]) / mount.get("subPath", ""))
        for mount in container.get("volumeMounts", [])
    }
    message_path = container.get("terminationMessagePath", "/dev/termination-log")
    return mounts | {message_path: str(folder.termination_message(container["name"]))}


def map_paths(text: str, mounts: Mapping[str, str]) -> str:
    """Replace a mounted path at the start of the text, or after the `=` of an option."""
    option, equals, path = text.rpartition("=") if text.startswith("--") else ("", "", text)
    for inside in sorted(mounts, key=len, reverse=True):
        if path == inside or path.startswith(f"{inside}/"):
            return f"{option}{equals}{mounts[inside]}{path.removeprefix(inside)}"
    return text


_REFERENCE: Final = re.compile(r"\$(?:\$|\((?P<name>[^()]+)\))")


def expanded(text: str, variables: Mapping[str, str | None]) -> str:
    """As a kubelet expands a value or a word of a command: `$(NAME)` is a variable's value, and `$$` is `$`. What names
    no variable stays (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables).
    """

    def value(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        known = variables.get(found["name"])
        return found[0] if known is None else known

    return _REFERENCE.sub(value, text)


def _value(variable: EnvVar, caller: Mapping[str, str], earlier: Mapping[str, str | None]) -> str | None:
    """The value of one entry of `env`, which may name `earlier` ones. None: an optional secret that the caller does not
    have.
    """
    name = variable["name"]
    if "valueFrom" not in variable:
        return expanded(str(variable.get("value", "")), earlier)
    secret = variable["valueFrom"]["secretKeyRef"]
    if value := caller.get(name):
        return value
    if secret.get("optional"):
        return None
    raise NotLaunchableError(
        "CreateContainerConfigError",
        f"{name} is not set; set it in the shell where you call rlctl (on a cluster it comes from the Secret "
        f"{secret['name']!r}, key {secret['key']!r})",
    )


_detached: set[subprocess.Popen[bytes]] = set()


def start_detached(
    argv: Sequence[str],
    folder: Path,
    log: Path,
    env_vars: Mapping[str, str] | None = None,
    lock: FileLock | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that outlives us, with its output in a log. Raises OSError.

    `env_vars`: None: ours. `lock`: taken by us; the process holds it while it is alive, and has signed it. A program
    that ends before we do stays a zombie until the next call.
    """
    for each in tuple(_detached):
        if each.poll() is not None:
            _detached.discard(each)
    with open(log, "ab", opener=private) as output:
        process = subprocess.Popen(  # noqa: S603 -- our own program, or that of our own manifest
            argv,
            cwd=folder,
            env=env_vars,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock.descriptor,) if lock else (),
        )
    _detached.add(process)
    if lock:
        lock.sign(process.pid)
        lock.give_back()  # our copy; the process keeps its own
    return process


def write_volumes(spec: PodSpec, folder: PodFolder, data_of: Callable[[str], Mapping[str, str]]) -> None:
    """Make a folder for every volume, and for what is mounted of it; a ConfigMap's keys become files: all of them, or
    those of its items.
    """
    for volume in spec.get("volumes", []):
        root = folder.volume(volume["name"])
        root.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            data = data_of(volume["configMap"]["name"])
            items = {item["key"]: item["path"] for item in volume["configMap"].get("items", [])}
            for key, path in (items or {key: key for key in data}).items():
                if key in data:
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / path).write_text(data[key], encoding="utf-8")
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        for mount in container.get("volumeMounts", []):
            (folder.volume(mount["name"]) / mount.get("subPath", "")).mkdir(parents=True, exist_ok=True)
