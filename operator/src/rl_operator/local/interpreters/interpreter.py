"""One interpreter of the state folder: a folder with a marker that names the build in force, and a lock. uv builds it.

A build is made in a folder of its own, because a virtual environment cannot be moved. It counts once the marker names
it: whatever kills an install before that leaves what was there in force.

Its `tinker-atropos` is the one that is installed here.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from rl_operator import programs
from rl_operator.local.state.locks import FileLock, holder
from rl_operator.operator_errors import RefusedError, TargetUnreachableError

DISTRIBUTION: Final = "tinker-atropos"
PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")
"""What a local folder is built from: if one changes, it has to be installed again."""


@dataclass(frozen=True, slots=True)
class Installed:
    """`origin` is what `direct_url.json` says (PEP 610); empty: it comes from an index. `stamp` changes when another
    one is installed.
    """

    version: str
    origin: Mapping[str, Any]
    stamp: str

    def arguments(self, extra: str) -> tuple[str, ...]:
        """The arguments of `uv pip install`, for the same one with an extra (empty: none)."""
        extras = f"[{extra}]" if extra else ""
        if not self.origin:
            return (f"{DISTRIBUTION}{extras}=={self.version}",)
        if self.is_editable:
            return ("--editable", f"{self.folder}{extras}")
        return (f"{DISTRIBUTION}{extras} @ {self._reference}",)

    @property
    def folder(self) -> Path | None:
        """The folder or archive on this machine that it was installed from."""
        url = urlsplit(self.origin.get("url", ""))
        return Path(unquote(url.path)) if url.scheme == "file" else None

    @property
    def is_editable(self) -> bool:
        return bool(self.origin.get("dir_info", {}).get("editable"))

    @property
    def told(self) -> str:
        """`0.1.0 (editable, /src/tinker-atropos)`."""
        if not self.origin:
            return self.version
        how = "editable, " if self.is_editable else ""
        return f"{self.version} ({how}{self.folder or self._reference})"

    @property
    def _reference(self) -> str:
        url, version = str(self.origin["url"]), self.origin.get("vcs_info")
        if version:
            url = f"{version['vcs']}+{url}@{version['commit_id']}"
        inside = self.origin.get("subdirectory")
        return f"{url}#subdirectory={inside}" if inside else url


def read_installed(program: str) -> Installed:
    """The catalog of a program `tinker-atropos`, which need not be beside this Python. Raises RefusedError."""
    path = Path(program)
    beside = path.parent == Path(sys.executable).parent
    places = sys.path if beside else [str(place) for place in path.resolve().parents[1].glob("lib/python*/*-packages")]
    found = next(iter(metadata.distributions(name=DISTRIBUTION, path=places)), None)
    if found is None:
        raise RefusedError(
            f"{program} belongs to no installed distribution {DISTRIBUTION}, so no other environment can get the same "
            f"one; {programs.INSTALL_HINT}"
        )
    texts = {name: found.read_text(name) or "" for name in ("direct_url.json", "RECORD")}
    installed = Installed(found.version, json.loads(texts["direct_url.json"] or "{}"), "")
    project = project_hash(installed.folder) if installed.folder and installed.is_editable else ""
    return replace(installed, stamp=stamp_of([found.version, texts, project, sys.version_info[:2]]))


def project_hash(folder: Path) -> str:
    """The hash of the files that say how a local folder is built, and what it requires."""
    files = [folder / name for name in PROJECT_FILES]
    return stamp_of([file.read_bytes().hex() if file.is_file() else None for file in files])


def stamp_of(parts: object) -> str:
    """Twelve digits that differ where the parts, as JSON, do."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


PROGRAM: Final = DISTRIBUTION
LOOK_SECONDS: Final = 0.2
TICK_SECONDS: Final = 1.0
LAST_LINES: Final = 8

Progress = Callable[[str], None]
"""Gets what is being done, whenever that changes, and every TICK_SECONDS."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is installed. `packages`: arguments of `uv pip install` by the name that they are known by; `stamp` is that
    of all of it, with the `tinker-atropos` that `base` installs.
    """

    installed: Installed
    base: tuple[str, ...]
    packages: Mapping[str, tuple[str, ...]]
    stamp: str

    @property
    def arguments(self) -> list[str]:
        return [*self.base, *(word for words in self.packages.values() for word in words)]


@dataclass(frozen=True, slots=True)
class Marker:
    """What was installed. `seconds`: how long that took; `size` in bytes."""

    build: str
    tinker_atropos: str
    base_stamp: str
    stamp: str
    packages: Mapping[str, tuple[str, ...]]
    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`folder` is `interpreters/NAME`; it need not exist."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def marker(self) -> Marker | None:
        """None: nothing is installed."""
        try:
            told = json.loads((self.folder / "installed.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        packages = {name: tuple(words) for name, words in told.pop("packages").items()}
        return Marker(**told, packages=packages)

    def build_folder(self, marker: Marker) -> Path:
        return self.folder / marker.build

    def program(self, marker: Marker) -> Path:
        return self.build_folder(marker) / "bin" / PROGRAM

    def ensure(self, make: Callable[[Marker | None], Recipe], environ: Mapping[str, str], progress: Progress) -> bool:
        """Install what `make` says, given what is installed; returns whether there was anything to do.

        Waits for another process that installs. Raises RefusedError, and TargetUnreachableError if there is no room.
        """
        uv = find_uv(environ)
        with self._locked(progress) as lock:
            before = self.marker
            recipe = make(before)
            if before is not None and before.stamp == recipe.stamp:
                return False
            for build in self.builds():  # what a killed install left: no process uses a build that was never named
                if not used_file(build).exists():
                    shutil.rmtree(build, ignore_errors=True)
            self._build(recipe, partial(_run_uv, uv, environ, lock, progress))
            return True

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep others from building meanwhile; False: somebody is at it."""
        lock = FileLock(self._lock)
        taken = lock.take()
        try:
            yield taken
        finally:
            lock.give_back()

    def remove(self) -> None:
        """All builds. The marker goes first: what is left of an interrupted removal does not count."""
        (self.folder / "installed.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def builds(self) -> tuple[Path, ...]:
        return tuple(self.folder.glob("build-*"))

    def _build(self, recipe: Recipe, run_uv: Callable[..., None]) -> None:
        build, begun = self.folder / f"build-{secrets.token_hex(4)}", time.monotonic()
        try:
            run_uv("making a virtual environment", "venv", "--no-project", "--python", sys.executable, str(build))
            arguments = recipe.arguments
            run_uv(f"uv installs {' '.join(arguments)}", "pip", "install", "--python", str(build), *arguments)
            size = sum(file.lstat().st_blocks * 512 for file in build.rglob("*"))
            told = recipe.installed.told, recipe.installed.stamp, recipe.stamp, recipe.packages
            used_file(build).touch()
            marker = Marker(build.name, *told, round(time.monotonic() - begun, 1), size)
            new = self.folder / "installed.json.new"
            new.write_text(json.dumps(asdict(marker), indent=1), encoding="utf-8")
            new.replace(self.folder / "installed.json")
        except OSError as error:
            shutil.rmtree(build, ignore_errors=True)
            raise TargetUnreachableError(f"cannot write {error.filename or build}: {error.strerror}") from error
        except BaseException:  # an interrupt, too: what is half installed is of no use
            shutil.rmtree(build, ignore_errors=True)
            raise

    @contextlib.contextmanager
    def _locked(self, progress: Progress) -> Iterator[int]:
        lock = FileLock(self._lock)
        while not lock.take():
            progress(f"process {holder(self._lock) or '?'} is installing {self.name}: waiting for it")
            time.sleep(LOOK_SECONDS)
        lock.sign(os.getpid())
        try:
            yield lock.descriptor
        finally:
            lock.give_back()

    @property
    def _lock(self) -> Path:
        return self.folder.with_name(f"{self.name}.lock")


def used_file(build: Path) -> Path:
    """Its modification time says when a program was last started from the build."""
    return build / "used"


def find_uv(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Its command. Raises RefusedError where there is none."""
    if importlib.util.find_spec("uv"):
        return (sys.executable, "-m", "uv")
    if found := shutil.which("uv", path=environ.get("PATH")):
        return (found,)
    raise RefusedError(
        "uv is not installed, and it makes the interpreters of environments with packages of their own; install it "
        f"beside rlctl ({sys.executable} -m pip install uv) or anywhere on PATH, then try again"
    )


def _run_uv(
    command: Sequence[str], environ: Mapping[str, str], lock: int, progress: Progress, what: str, *arguments: str
) -> None:
    """`what`: for `progress`. The process inherits the descriptor of `lock`, which is held while it is alive. Raises
    RefusedError with its last lines.
    """
    progress(what)
    others = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env_vars = {name: value for name, value in environ.items() if name not in others} | {"NO_COLOR": "1"}
    last: deque[str] = deque(maxlen=LAST_LINES)
    with subprocess.Popen(  # noqa: S603 -- uv
        [*command, *arguments],
        env=env_vars,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
    ) as process:
        assert process.stdout is not None
        try:
            for line in _lines(process.stdout):
                last.extend([line] if line else [])
                progress(last[-1] if last else "")
        except BaseException:  # whatever ends us meanwhile ends it, too
            process.kill()
            raise
    if process.returncode:
        said = "".join(f"\n  {line}" for line in last) or f" it ended with code {process.returncode}"
        raise RefusedError(
            f"uv could not install it, and nothing was changed. Its last lines:{said}\n"
            "Check the packages' names, and the index that uv is configured with (UV_DEFAULT_INDEX, UV_INDEX, "
            "SSL_CERT_FILE, or uv.toml); then try again"
        )


def _lines(output: IO[bytes]) -> Iterator[str]:
    """What a process writes, until it has ended; empty: nothing for TICK_SECONDS."""
    unfinished = b""
    while True:
        if not select.select([output], [], [], TICK_SECONDS)[0]:
            yield ""
            continue
        read = os.read(output.fileno(), 2**16)
        *lines, unfinished = (unfinished + read).split(b"\n")
        yield from (line.decode(errors="replace").strip() for line in lines)
        if not read:
            yield unfinished.decode(errors="replace").strip()
            return
