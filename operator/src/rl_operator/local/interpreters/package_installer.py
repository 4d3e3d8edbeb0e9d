"""Makes a virtual environment and installs packages into it: with uv if it is there (a tenth of pip's time), else with
pip. Both follow what pip is configured with.
"""

import importlib.util
import queue
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_operator.errors import RefusedError
from rl_operator.pip_settings import read_settings, uv_variables

Progress = Callable[[str], None]
"""Gets what is being done, whenever that changes, and every TICK_SECONDS."""

TICK_SECONDS: Final = 1.0
LAST_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class PackageInstaller:
    """`uv` is its command; empty: pip installs, from the new environment itself."""

    uv: tuple[str, ...]
    env_vars: Mapping[str, str]

    @property
    def name(self) -> str:
        return "uv" if self.uv else "pip"

    def build(self, folder: Path, arguments: Sequence[str], lock: int, progress: Progress) -> None:
        """Make the environment in a new folder; `arguments` are those of `pip install`. The processes inherit the
        descriptor of `lock`, so that it is held while one of them is alive. Raises RefusedError with the last lines.
        """
        python, without_pip = folder / "bin" / "python", ["--without-pip"] if self.uv else []
        progress("making a virtual environment")
        self._run([sys.executable, "-m", "venv", *without_pip, str(folder)], lock, progress)
        pip = (
            [*self.uv, "pip", "install", "--python", str(python)] if self.uv else [str(python), "-m", "pip", "install"]
        )
        progress(f"{self.name} installs {' '.join(arguments)}")
        self._run([*pip, *arguments], lock, progress)

    def _run(self, command: Sequence[str], lock: int, progress: Progress) -> None:
        last: deque[str] = deque(maxlen=LAST_LINES)
        code = _lines_of(command, self.env_vars, lock, _remembering(last, progress))
        if code:
            said = "".join(f"\n  {line}" for line in last) or f" it ended with code {code} and said nothing"
            raise RefusedError(
                f"{self.name} could not install it, and nothing was changed. Its last lines:{said}\n"
                "Check the packages' names, and the index that pip is configured with (pip config list); then try again"
            )


def find_installer(environ: Mapping[str, str]) -> PackageInstaller:
    """uv, if all that pip is configured with has a counterpart in it; else pip."""
    env_vars = {
        name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    uv = _uv(environ)
    variables = uv_variables(_pip_settings(environ)) if uv else None
    if variables is None:
        return PackageInstaller((), {**env_vars, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"})
    return PackageInstaller(uv, {**env_vars, **variables, "NO_COLOR": "1"})


def _uv(environ: Mapping[str, str]) -> tuple[str, ...]:
    if importlib.util.find_spec("uv"):
        return (sys.executable, "-m", "uv")
    found = shutil.which("uv", path=environ.get("PATH"))
    return (found,) if found else ()


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """None of them if this Python has no pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)  # noqa: S603 -- our own pip
    return read_settings(listed.stdout) if listed.returncode == 0 else {}


def _remembering(last: deque[str], progress: Progress) -> Progress:
    def line(text: str) -> None:
        if text and (not last or last[-1] != text):
            last.append(text)
        progress(last[-1] if last else "")

    return line


def _lines_of(command: Sequence[str], env_vars: Mapping[str, str], lock: int, progress: Progress) -> int:
    """Run it to its end; returns its code. Whatever ends us meanwhile ends it, too."""
    process = subprocess.Popen(  # noqa: S603 -- uv or pip
        command,
        env=dict(env_vars),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(lock,),
    )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines), daemon=True)
    reader.start()
    try:
        while (line := _next(lines)) is not None:
            progress(line)
        return process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _read_lines(process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.put(line.strip())
    lines.put(None)


def _next(lines: "queue.Queue[str | None]") -> str | None:
    """The next line; empty: none for TICK_SECONDS; None: there are no more."""
    try:
        return lines.get(timeout=TICK_SECONDS)
    except queue.Empty:
        return ""
