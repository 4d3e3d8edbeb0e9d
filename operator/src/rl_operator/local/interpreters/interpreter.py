"""One interpreter of the state folder: a folder with a marker that names the build in force, and a lock.

A build is made in a folder of its own, because a virtual environment cannot be moved. It counts once the marker names
it: whatever kills an install before that leaves what was there in force.
"""

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rl_operator.errors import TargetUnreachableError
from rl_operator.local.interpreters.package_installer import PackageInstaller, Progress
from rl_operator.local.state.locks import FileLock, holder, is_held

PROGRAM: Final = "tinker-atropos"
BUILD_PREFIX: Final = "build-"
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is installed. `packages`: arguments of `pip install` by the name that they are known by; `stamp` is that of
    all of it, `base_stamp` that of the `tinker-atropos` in it.
    """

    base: tuple[str, ...]
    base_told: str
    base_stamp: str
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

    @property
    def is_being_built(self) -> bool:
        return is_held(self._lock)

    def ensure(self, make: Callable[[Marker | None], Recipe], installer: PackageInstaller, progress: Progress) -> bool:
        """Install what `make` says, given what is installed; returns whether there was anything to do.

        Waits for another process that installs. Raises RefusedError, and TargetUnreachableError if there is no room.
        """
        with self._locked(progress) as lock:
            before = self.marker
            recipe = make(before)
            if before is not None and before.stamp == recipe.stamp:
                return False
            self._remove_unfinished(before)
            self._build(recipe, installer, lock, progress)
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
        return tuple(self.folder.glob(f"{BUILD_PREFIX}*"))

    def _build(self, recipe: Recipe, installer: PackageInstaller, lock: int, progress: Progress) -> None:
        build, begun = self.folder / f"{BUILD_PREFIX}{secrets.token_hex(4)}", time.monotonic()
        try:
            installer.build(build, recipe.arguments, lock, progress)
            size, seconds = _size_of(build), round(time.monotonic() - begun, 1)
            told = recipe.base_told, recipe.base_stamp, recipe.stamp, recipe.packages
            used_file(build).touch()
            self._mark(Marker(build.name, *told, seconds, size))
        except OSError as error:
            shutil.rmtree(build, ignore_errors=True)
            raise TargetUnreachableError(f"cannot write {error.filename or build}: {error.strerror}") from error
        except BaseException:  # an interrupt, too: what is half installed is of no use
            shutil.rmtree(build, ignore_errors=True)
            raise

    def _mark(self, marker: Marker) -> None:
        new = self.folder / "installed.json.new"
        new.write_text(json.dumps(asdict(marker), indent=1), encoding="utf-8")
        new.replace(self.folder / "installed.json")

    def _remove_unfinished(self, marker: Marker | None) -> None:
        """What a killed install left: no process uses a build that was never named. The others are swept later."""
        for build in self.builds():
            named = marker is not None and build.name == marker.build
            if not named and not used_file(build).exists():
                shutil.rmtree(build, ignore_errors=True)

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


def _size_of(folder: Path) -> int:
    """Bytes on disk."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*"))
