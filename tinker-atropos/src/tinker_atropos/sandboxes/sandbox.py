"""What a sandbox can do, wherever it is. All calls block, and may be made from any thread."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

NO_VARIABLES: Final[Mapping[str, str]] = {}


class SandboxError(Exception):
    """The sandbox cannot do what was asked; the message says why, for the agent to read."""


class SandboxLostError(SandboxError):
    """The sandbox is gone: its rollout cannot go on."""


class NotIsolatedError(SandboxLostError):
    """Nothing on this machine can be kept apart, now and later."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """The limits of one sandbox, all its processes together: `memory_mb` and `disk_mb` in MiB, `processes` at once.
    What is more costs the sandbox all of its processes, and no other sandbox anything.

    With `network`, programs in it may connect to anything that this process may; without it, to nothing but each other,
    where the kernel allows that. With `must_isolate` there is no sandbox where it does not.
    """

    memory_mb: int = 1024
    disk_mb: int = 256
    processes: int = 128
    network: bool = False
    must_isolate: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A shell's text, or a program and its arguments. `folder` None: the sandbox's own. `timeout` in seconds.

    `max_output` bounds the bytes of stdout and stderr together that are kept: the first and the last half.
    """

    program: str | Sequence[str]
    timeout: float
    env_vars: Mapping[str, str] = field(default_factory=lambda: NO_VARIABLES)
    stdin: str = ""
    folder: str | None = None
    max_output: int = 50_000


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`output` is stdout and stderr as they came. A command that was cut has `timed_out`, and exit code 124; one that
    a signal ended has 128 and the signal's number. It ends alone: what it left in the background goes on.
    """

    exit_code: int
    output: str
    timed_out: bool = False
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A line of a file; `line` counts from 1."""

    path: str
    line: int
    text: str


class Sandbox(Protocol):
    """Relative paths begin in the sandbox's own folder. All methods raise SandboxError."""

    def run(self, command: Command) -> CommandResult: ...

    def read_file(self, path: str, max_bytes: int) -> bytes: ...

    def write_file(self, path: str, content: bytes) -> None:
        """Makes folders on the way."""
        ...

    def find_text(self, pattern: str, path: str, file_glob: str, limit: int) -> list[Match]:
        """Lines that a regular expression matches, in files whose names match the glob."""
        ...

    def find_files(self, file_glob: str, path: str, limit: int) -> list[str]:
        """Paths of files, newest first."""
        ...

    def close(self) -> None:
        """End every process in it and remove its files. Never raises; more than one call is fine."""
        ...


def always() -> bool:
    return True


class SandboxPool(Protocol):
    """Sandboxes that are ready before they are needed."""

    def lease(self, is_wanted: Callable[[], bool] = always) -> Sandbox:
        """One for one rollout: whoever leases it closes it, and it is never used again. Raises SandboxLostError if
        there is none to be had, or if one was waited for until `is_wanted` said no.
        """
        ...

    def give_back(self, sandbox: Sandbox) -> None:
        """One that was leased and not used: the next rollout may have it."""
        ...

    def close(self) -> None:
        """End all sandboxes, leased ones too."""
        ...
