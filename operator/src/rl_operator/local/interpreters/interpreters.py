"""The interpreters of a state folder: which one runs an environment, which are there, and how they come about."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_operator import programs
from rl_operator.api.names import REQUIREMENTS_FILE
from rl_operator.api.separate_interpreters import requirements_missing
from rl_operator.errors import OperatorError, RefusedError
from rl_operator.local.interpreters.family_packages import EXTRAS, family_absence, family_recipe, require_family
from rl_operator.local.interpreters.installed import Installed, read_installed
from rl_operator.local.interpreters.interpreter import PROGRAM, Interpreter, Marker, Recipe
from rl_operator.local.interpreters.package_installer import Progress, find_installer
from rl_operator.local.interpreters.requirement_files import fault_of, interpreter_name, requirements_recipe
from rl_operator.local.state.layout import Layout

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
        family = entry.partition("/")[0]
        if family in EXTRAS and "/" in entry:
            return self._family_build(family)
        beside = Path(entry).with_name(REQUIREMENTS_FILE)
        if not (entry.endswith(".py") and beside.is_file()):
            return None
        interpreter = self.of_requirements(beside.read_text(encoding="utf-8"))
        marker = interpreter.marker
        if marker is None:
            raise RefusedError(f"environment {Path(entry).name}: {requirements_missing('FILE.py, or own/NAME')}")
        return interpreter.build_folder(marker)

    def _family_build(self, family: str) -> Path | None:
        interpreter = self.named(family)
        if absence := self.absence(family):
            raise RefusedError(absence)
        marker = interpreter.marker
        return interpreter.build_folder(marker) if marker else None

    def env_vars(self, build: Path) -> dict[str, str]:
        """The caller's, for a program of that virtual environment."""
        return within(build, self.caller)

    # --- what is there --------------------------------------------------------------------------------------------
    def named(self, name: str) -> Interpreter:
        return Interpreter(self.layout.interpreters / name)

    def of_requirements(self, text: str) -> Interpreter:
        """It need not be there. Raises RefusedError if no tinker-atropos is installed."""
        return self.named(interpreter_name(text, self.installed()))

    def all(self) -> Iterator[tuple[Interpreter, Marker]]:
        for _, interpreter in self.named_all():
            if (marker := interpreter.marker) is not None:
                yield interpreter, marker

    def named_all(self) -> Iterator[tuple[str, Interpreter]]:
        """With unfinished ones, which take space, too."""
        for folder in sorted(self.layout.interpreters.glob("*/")):
            yield folder.name, Interpreter(folder)

    def installed(self) -> Installed:
        return read_installed(programs.find_program(PROGRAM, self.caller.get("PATH")))

    def absence(self, family: str) -> str | None:
        """Why no environment of a library can be named, and what to do; None: its interpreter is there."""
        marker = self.named(family).marker
        return family_absence(family, self._installed_or_none() if marker else None, marker)

    # --- how they come about --------------------------------------------------------------------------------------
    def install_family(self, family: str, packages: Sequence[str], progress: Progress) -> bool:
        """Returns whether there was anything to do. Raises RefusedError."""
        interpreter, installed = self.named(require_family(family)), self.installed()
        installer = find_installer(self.caller)
        return interpreter.ensure(
            lambda before: family_recipe(family, installed, before, packages), installer, progress
        )

    def install_requirements(self, text: str, progress: Progress) -> bool:
        """Returns whether there was anything to do. Raises RefusedError."""
        if fault := fault_of(text):
            raise RefusedError(fault)
        installed = self.installed()
        interpreter = self.of_requirements(text)

        def recipe(_before: Marker | None) -> Recipe:
            interpreter.folder.mkdir(parents=True, exist_ok=True)
            file = interpreter.folder / REQUIREMENTS_FILE
            file.write_text(text, encoding="utf-8")
            return requirements_recipe(text, installed, file)

        if interpreter.marker is not None:  # its name says what is in it
            return False
        return interpreter.ensure(recipe, find_installer(self.caller), progress)

    def _installed_or_none(self) -> Installed | None:
        """None: that is another refusal's matter."""
        try:
            return self.installed()
        except OperatorError:
            return None


def within(build: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for a program of that virtual environment: it and its children find its packages, and no others."""
    kept = {name: value for name, value in variables.items() if name not in _FOREIGN}
    path = f"{build / 'bin'}:{variables['PATH']}" if "PATH" in variables else str(build / "bin")
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(build)}
