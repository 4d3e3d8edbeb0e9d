"""From files to the catalog of the one environment that they define, or to the problem with them.

The files are read by `tinker-atropos` in a process with limits: whatever untrusted code does to it, this process is
not affected. Its output goes into files, so that the kernel bounds it and nothing has to read it meanwhile.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from rl_operator.api.catalog import Catalog, CatalogProblem
from rl_operator.api.settings.size_limits import section_problem
from rl_operator.documents.source_files import chosen_entry, source_problem
from rl_operator.operator_errors import OperatorError
from rl_operator.programs import find_program

TIMEOUT: Final = 90.0
"""Seconds on the clock, for a busy machine: a file that takes long is ended by its CPU time."""

CPU_SECONDS: Final = 10
MEMORY_KIB: Final = 192 * 1024
"""900 kB of ordinary code take 105 MiB, and hostile code would take 500. Readers share the memory limit of the
operator's container, and if it is exceeded, all of its processes are killed.
"""
OUTPUT_KIB: Final = 4 * 1024

# The shell sets the limits and then execs the program: unlike a function between fork and exec, that is safe with
# threads. Where a system lacks one of them (macOS has no -v), the others hold. -f counts in blocks of 512 bytes.
_LIMITS: Final = (
    f'ulimit -c 0; ulimit -t {CPU_SECONDS}; ulimit -f {OUTPUT_KIB * 2}; ulimit -v {MEMORY_KIB} 2>/dev/null; exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. `code` is negative for a signal, None if it was killed at its time limit."""

    code: int | None
    output: bytes
    last_words: str
    seconds: float

    @property
    def reason(self) -> str:
        """Why there is no result, as a clause."""
        if self.code is None:
            return f"that took longer than {self.seconds:g} s"
        if self.code == -signal.SIGXCPU:
            return f"that took more than {CPU_SECONDS} s of CPU time"
        if "MemoryError" in self.last_words:
            return f"that took more than {MEMORY_KIB // 1024} MiB of memory"
        how = f"ended with signal {-self.code}" if self.code < 0 else f"ended with code {self.code}"
        return f"the reader {how}: {self.last_words}" if self.last_words else f"the reader {how}"


async def run_limited(
    arguments: Sequence[str], folder: Path, caller: Mapping[str, str], seconds: float = TIMEOUT
) -> Ended:
    """Run a program; `folder` holds its output. Cancellation leaves no process behind."""
    # No keys, and the folder that is read is not on the path: Python would run that code.
    passed = {name: value for name, value in caller.items() if name == "PATH" or name.startswith("PYTHON")}
    code: int | None = None
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _LIMITS, "sh", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env=passed | {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
        )
        try:
            code = await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    errors = (folder / "stderr").read_bytes().decode("utf-8", "replace").strip().splitlines()
    return Ended(code, (folder / "stdout").read_bytes(), errors[-1][:200] if errors else "", seconds)


PROGRAM: Final = "tinker-atropos"
_USAGE: Final = 2


async def discover_files(files: Mapping[str, str], entry: str | None, *, program: str | None = None) -> Catalog:
    """What the entry (by default the only .py file) defines. Nothing in the files is executed.

    Files that cannot be served give a catalog with a `problem`. Raises ProgramMissingError, or OperatorError if
    the program does not support this call.
    """
    if problem := source_problem(files, entry):
        return Catalog(problem=problem)
    name, program = chosen_entry(files, entry), program or find_program(PROGRAM, os.environ.get("PATH"))
    with _workplace(files) as folder:
        source = str(folder / "source")
        arguments = [program, "environments", "--path", source, "--entry", name, "--output", "json"]
        ended = await run_limited(arguments, folder, os.environ)
    return _catalog(ended, name)


@contextlib.contextmanager
def _workplace(files: Mapping[str, str]) -> Iterator[Path]:
    """A temporary folder: `source` in it holds the files."""
    with tempfile.TemporaryDirectory(prefix="rl-discovery-", ignore_cleanup_errors=True) as folder:
        source = Path(folder, "source")
        source.mkdir()
        for name, text in files.items():
            (source / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        yield Path(folder)


def _catalog(ended: Ended, entry: str) -> Catalog:
    if ended.code == _USAGE:
        raise OperatorError(f"{PROGRAM} cannot be asked for one file's environment ({ended.last_words}): upgrade it")
    if ended.code == 0:
        with contextlib.suppress(ValidationError):
            return _usable(Catalog.model_validate_json(ended.output), entry)
    reason = ended.reason if ended.code != 0 else "the reader's answer is not a catalog"
    message = f"it cannot be read: {reason}; make the file smaller and simpler"
    return Catalog(problem=CatalogProblem(reason="Unreadable", file=entry, message=message))


def _usable(catalog: Catalog, entry: str) -> Catalog:
    """What is read of untrusted code is stored in a status, and compared with what runs set: it has the same limits."""
    for environment in catalog.environments:
        if problem := section_problem({field.name: field.default for field in environment.fields}):
            name, hint = problem
            what = f"the default of its config's field {name!r}" if name else "its config"
            message = f"{what} is too large: {hint}"
            return Catalog(problem=CatalogProblem(reason="Unreadable", file=entry, message=message))
    return catalog
