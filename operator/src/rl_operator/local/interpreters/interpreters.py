"""The interpreters of a state folder: which one runs an environment, which are there, and how they come and go.

There are two kinds: of a library whose packages conflict with ours, by its name, and of a `requirements.txt` beside an
environment's file, by its content.
"""

import re
import shutil
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_operator import programs
from rl_operator.api.names import REQUIREMENTS_FILE
from rl_operator.local.interpreters.interpreter import (
    PROGRAM,
    Installed,
    Interpreter,
    Marker,
    Progress,
    Recipe,
    project_hash,
    read_installed,
    stamp_of,
    used_file,
)
from rl_operator.local.state.layout import Layout, PodFolder
from rl_operator.local.state.locks import is_held
from rl_operator.operator_errors import OperatorError, RefusedError

LIBRARY: Final = "verifiers"
"""The library with an interpreter of its own, and the extra of tinker-atropos that installs it."""

INSTALL: Final = "rlctl environments install"
NOT_INSTALLED: Final = (
    f"{LIBRARY} is not installed: {INSTALL} {LIBRARY} [PACKAGE…] makes an interpreter for it, because its packages "
    "conflict with ours"
)

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an interpreter of a requirements.txt outlives the last run that used it: its author is about to start the
next one.
"""

REPLACED_SECONDS: Final = 3600.0
"""How long a build that another one has replaced is kept after its last use."""

_PREFIX: Final = "requirements-"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]*[A-Za-z0-9])?")
_ELSEWHERE: Final = re.compile(r"(-r|-c|--requirement|--constraint)\b")
_RELATIVE: Final = re.compile(r"(?:(?:-e|--editable)[\s=]*)?(?:\.{1,2}(?:/|$|\[)|file:(?!//?/))")
_FOREIGN: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PYTHONDONTWRITEBYTECODE")
"""Variables that lead an interpreter to the packages of another one, or keep it from remembering what it has compiled:
uv installs without bytecode, and verifiers would be compiled again at each start (6 s of CPU).
"""


@dataclass(frozen=True, slots=True)
class Interpreters:
    """`caller`: the environment variables of the process that started us."""

    layout: Layout
    caller: Mapping[str, str]

    # --- which runs an environment --------------------------------------------------------------------------------
    def build_for(self, entry: str) -> Path | None:
        """The virtual environment for an entry of `tinker-atropos environment`: a name, or the path of a file. None:
        ours. Raises RefusedError if it is not there.
        """
        if entry.startswith(f"{LIBRARY}/"):
            interpreter, absence = self.named(LIBRARY), self.absence()
        else:
            beside = Path(entry).with_name(REQUIREMENTS_FILE)
            if not (entry.endswith(".py") and beside.is_file()):
                return None
            interpreter = self.of_requirements(beside.read_text(encoding="utf-8"))
            missing = (
                f"environment {Path(entry).name}: its requirements.txt is not installed in an interpreter of its own: "
                f"{INSTALL} FILE.py, or own/NAME"
            )
            absence = None if interpreter.marker else missing
        if absence is not None:
            raise RefusedError(absence)
        marker = interpreter.marker
        return interpreter.build_folder(marker) if marker else None

    # --- what is there --------------------------------------------------------------------------------------------
    def named(self, name: str) -> Interpreter:
        return Interpreter(self.layout.interpreters / name)

    def of_requirements(self, text: str) -> Interpreter:
        """It need not be there. Raises RefusedError if no tinker-atropos is installed."""
        return self.named(requirements_name(text, self.installed()))

    def all(self) -> dict[str, Interpreter]:
        """By name. Unfinished ones, which take space, too."""
        return {folder.name: Interpreter(folder) for folder in sorted(self.layout.interpreters.glob("*/"))}

    def installed(self) -> Installed:
        return read_installed(programs.find_program(PROGRAM, self.caller.get("PATH")))

    def absence(self) -> str | None:
        """Why no environment of the library can be named, and what to do; None: its interpreter is there."""
        marker = self.named(LIBRARY).marker
        if marker is None:
            return NOT_INSTALLED
        try:
            installed = self.installed()
        except OperatorError:  # that is another refusal's matter
            return None
        if marker.base_stamp == installed.stamp:
            return None
        return (
            f"the interpreter of {LIBRARY} was made for tinker-atropos {marker.tinker_atropos}, and now there is "
            f"{installed.told}: {INSTALL} {LIBRARY} makes it again"
        )

    # --- how they come and go -------------------------------------------------------------------------------------
    def install_library(self, packages: Sequence[str], progress: Progress) -> bool:
        """Returns whether there was anything to do. Raises RefusedError."""
        installed = self.installed()
        return self.named(LIBRARY).ensure(
            lambda before: library_recipe(installed, before, packages), self.caller, progress
        )

    def install_requirements(self, text: str, progress: Progress) -> bool:
        """Returns whether there was anything to do. Raises RefusedError."""
        if fault := fault_of(text):
            raise RefusedError(fault)
        installed = self.installed()
        interpreter = self.of_requirements(text)
        if interpreter.marker is not None:  # its name says what is in it
            return False

        def recipe(_before: Marker | None) -> Recipe:
            interpreter.folder.mkdir(parents=True, exist_ok=True)
            file = interpreter.folder / REQUIREMENTS_FILE
            file.write_text(text, encoding="utf-8")
            return requirements_recipe(text, installed, file)

        return interpreter.ensure(recipe, self.caller, progress)


def within(build: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for a program of that virtual environment: it and its children find its packages, and no others."""
    kept = {name: value for name, value in variables.items() if name not in _FOREIGN}
    path = f"{build / 'bin'}:{variables['PATH']}" if "PATH" in variables else str(build / "bin")
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(build)}


# --- what is in them --------------------------------------------------------------------------------------------------
def library_recipe(installed: Installed, before: Marker | None, asked: Sequence[str]) -> Recipe:
    """With what was installed before, and what is asked for now. Raises RefusedError."""
    packages = {**(before.packages if before else {}), **dict(map(_package, asked))}
    folders = [project_hash(Path(path)) for path in packages if path[0] == "/"]
    stamp = stamp_of([installed.stamp, LIBRARY, packages, folders])
    return Recipe(installed, installed.arguments(LIBRARY), packages, stamp)


def requirements_recipe(text: str, installed: Installed, file: Path) -> Recipe:
    """`file` holds the text."""
    base = (*installed.arguments(""), "--requirement", str(file))
    return Recipe(installed, base, {line: () for _, line in _lines(text)}, requirements_name(text, installed))


def requirements_name(text: str, installed: Installed) -> str:
    """Equal requirements beside the same tinker-atropos share one; comments and the order of lines do not count."""
    return f"{_PREFIX}{stamp_of([sorted(line for _, line in _lines(text)), installed.stamp])}"


def fault_of(text: str) -> str | None:
    """What cannot be installed by its text alone, as a sentence; None: nothing."""
    for number, line in _lines(text):
        if _ELSEWHERE.match(line):
            return f"{REQUIREMENTS_FILE}, line {number}: {line!r} names another file: write its lines here"
        if _RELATIVE.match(line):
            return f"{REQUIREMENTS_FILE}, line {number}: {line!r} is a relative path: write an absolute one"
    return None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Those that say something, with their numbers."""
    for number, line in enumerate(text.splitlines(), start=1):
        if content := re.sub(r"(^|\s)#.*", "", line).strip():
            yield number, content


def _package(asked: str) -> tuple[str, tuple[str, ...]]:
    """Its name and how it is installed. A folder is used where it is, so that edits take effect."""
    text = asked.strip()
    path = Path(text).expanduser()
    if text.startswith(("/", ".", "~")) or ("/" in text and "@" not in text):
        if not path.exists():
            raise RefusedError(f"there is no folder or file {text}: give a package's folder, or its name on an index")
        place = str(path.resolve())
        return place, (("--editable", place) if path.is_dir() else (place,))
    name = _NAME.match(text)
    if name is None:
        raise RefusedError(f"{asked!r} is neither a package's name nor a folder: give NAME, NAME==VERSION or ./FOLDER")
    return re.sub(r"[-._]+", "-", name[0]).lower(), (text,)


# --- what nothing needs anymore ---------------------------------------------------------------------------------------
def remove_unused(layout: Layout) -> None:
    """Those of files whose runs are all deleted, a day later; replaced builds without a process, an hour later."""
    if not layout.interpreters.is_dir():
        return
    named, alive = set(_builds_noted(layout).values()), set(in_use(layout))
    for interpreter in map(Interpreter, layout.interpreters.glob("*/")):
        with interpreter.alone() as alone:
            if alone:
                _remove_unused(interpreter, named, alive)


def _remove_unused(interpreter: Interpreter, named: Container[Path], alive: Container[Path]) -> None:
    marker = interpreter.marker
    current = interpreter.build_folder(marker) if marker else None
    for build in interpreter.builds():
        if build != current and build not in alive and _idle(build) > REPLACED_SECONDS:
            shutil.rmtree(build, ignore_errors=True)
    if current is None:
        if not interpreter.builds():  # an install that failed
            interpreter.remove()
    elif interpreter.name.startswith(_PREFIX) and current not in named and _idle(current) > KEPT_SECONDS:
        interpreter.remove()


def in_use(layout: Layout) -> list[Path]:
    """Builds that a process runs from now."""
    noted = _builds_noted(layout)
    return [build for note, build in noted.items() if is_held(PodFolder(note.parents[1]).lock(note.stem))]


def _builds_noted(layout: Layout) -> dict[Path, Path]:
    """Builds that an attempt of a run that exists was started from, by the launch's note."""
    notes = (note for folder in layout.all_pod_folders for note in folder.glob("running/*.interpreter"))
    return {note: Path(note.read_text(encoding="utf-8")) for note in notes}


def _idle(build: Path) -> float:
    """Seconds since a program was last started from it; those of an unfinished build do not matter."""
    try:
        return time.time() - used_file(build).stat().st_mtime
    except FileNotFoundError:
        return float("inf")
