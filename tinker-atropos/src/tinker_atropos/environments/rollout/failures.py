"""Errors of an environment, as one sentence that names the line in its own files."""

import traceback
from pathlib import Path

from pydantic import ValidationError
from tenacity import RetryError

from tinker_atropos.errors import EnvironmentLostError, in_one_line

MAX_MESSAGE = 300
"""Characters kept of an exception's message: some carry whole rollouts."""


class IncompleteGroupError(Exception):
    """Rollouts of a group failed, and so did those that were made in their place. Its message says why."""


def environment_failed(doing: str, error: BaseException, source: Path) -> EnvironmentLostError:
    """The error that ends the process: `the environment failed in setup: ValueError: no data (my_env.py, line 12)`."""
    return EnvironmentLostError(f"the environment failed {doing}: {describe(error, source)}")


def describe(error: BaseException, source: Path) -> str:
    """The class, the message in one line, and the innermost line of the environment's own files: of its file, or
    of a module next to it.
    """
    cause = innermost(error)
    if isinstance(cause, IncompleteGroupError):
        return str(cause)
    if isinstance(cause, SystemExit):
        what = f"it called sys.exit({cause.code!r})"
    else:
        message = _message(cause)[:MAX_MESSAGE]
        what = f"{type(cause).__name__}: {message}" if message else type(cause).__name__
    return f"{what} ({_place(cause, source)})"


def _message(error: BaseException) -> str:
    """What the error says in one line."""
    if isinstance(error, ValidationError):
        return in_one_line(error)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return next(iter(message.strip().splitlines()), "")


def innermost(error: BaseException) -> BaseException:
    """The actual error: rollouts are retried with tenacity, whose RetryError hides it."""
    while isinstance(error, RetryError):
        cause = error.last_attempt.exception()
        if cause is None:
            break
        error = cause
    return error


def _place(error: BaseException, source: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(Path(frame.filename), source)]
    frame = own[-1] if own else frames[-1] if frames else None
    return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}" if frame else source.name


def _is_own(file: Path, source: Path) -> bool:
    """Whether it is the environment's file. Installed packages are not, even in a virtual environment next to it."""
    return file.is_relative_to(source.parent) and "site-packages" not in file.relative_to(source.parent).parts
