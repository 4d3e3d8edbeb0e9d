"""Removes interpreters that nothing needs any more, and builds that another one has replaced."""

import shutil
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from rl_operator.local.interpreters.interpreter import Interpreter, used_file
from rl_operator.local.interpreters.requirement_files import PREFIX
from rl_operator.local.state.layout import Layout, PodFolder
from rl_operator.local.state.locks import is_held

KEPT_SECONDS: Final = 24 * 3600.0
"""How long an interpreter of a requirements.txt outlives the last run that used it: its author is about to start the
next one.
"""

REPLACED_SECONDS: Final = 3600.0


def remove_unused(layout: Layout) -> None:
    """Those of files whose runs are all deleted, a day later; replaced builds without a process, an hour later."""
    if not layout.interpreters.is_dir():
        return
    named, alive = set(_named(layout)), set(in_use(layout))
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
    elif interpreter.name.startswith(PREFIX) and current not in named and _idle(current) > KEPT_SECONDS:
        interpreter.remove()


def in_use(layout: Layout) -> Iterator[Path]:
    """Builds that a process runs from now."""
    for note in _notes(layout):
        if is_held(PodFolder(note.parents[1]).lock(note.stem)):
            yield Path(note.read_text(encoding="utf-8"))


def _named(layout: Layout) -> Iterator[Path]:
    """Builds that an attempt of a run that exists was started from."""
    return (Path(note.read_text(encoding="utf-8")) for note in _notes(layout))


def _notes(layout: Layout) -> Iterator[Path]:
    for folder in layout.all_pod_folders:
        yield from folder.glob("running/*.interpreter")


def _idle(build: Path) -> float:
    """Seconds since a program was last started from it; those of an unfinished build do not matter."""
    try:
        return time.time() - used_file(build).stat().st_mtime
    except FileNotFoundError:
        return float("inf")
