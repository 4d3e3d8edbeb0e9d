"""Errors of an environment, as one sentence. It names the line in the environment's own files; or the way out, of data
from a hub, which its pod cannot reach.
"""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from tenacity import RetryError

from rl_contract.processes import DISK_FULL_ERRORS
from tinker_atropos.errors import EnvironmentLostError, in_one_line

MAX_MESSAGE = 300
"""Characters kept of an exception's message: some carry whole rollouts."""


HUB_CLIENTS: Final = frozenset({"datasets", "huggingface_hub", "requests", "urllib3", "httpx", "httpcore"})
WORD_LISTS: Final = "nltk"

HUB_ADVICE: Final = (
    "mount a Hugging Face cache that has it, and set HF_HOME to its folder and HF_DATASETS_OFFLINE=1 (its datasets/ is "
    "what `datasets.load_dataset` leaves behind where it can reach the hub)"
)
WORD_ADVICE: Final = "mount a folder with NLTK's data that has it, and set NLTK_DATA to that folder"


class IncompleteGroupError(Exception):
    """Rollouts of a group failed, and so did those that were made in their place. Its message says why."""


def environment_failed(doing: str, error: BaseException, source: Path) -> EnvironmentLostError:
    """The error that ends the process: `the environment failed in setup: ValueError: no data (my_env.py, line 12)`."""
    return EnvironmentLostError(f"the environment failed {doing}: {describe(error, source)}")


@contextlib.contextmanager
def authors_code(doing: str, source: Path) -> Iterator[None]:
    """Whatever is raised in the block is the failure of the environment: `environment_failed`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise environment_failed(doing, error, source) from error


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


def found_disk_full(error: BaseException) -> bool:
    """Then nobody is to blame, and the work is to be tried again."""
    cause = innermost(error)
    return isinstance(cause, OSError) and cause.errno in DISK_FULL_ERRORS


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


def missing_data(environment: str, error: BaseException) -> str | None:
    """None if the error is about something else."""
    for cause in _chain(error):
        message = next((line for line in str(cause).splitlines() if line.strip(" *")), "").strip()[:MAX_MESSAGE]
        said = f"{type(cause).__name__}: {message}"
        clients = _modules(cause)
        if isinstance(cause, LookupError) and WORD_LISTS in clients:
            return f"{environment} needs word lists, which are not here ({said}): {WORD_ADVICE}"
        if isinstance(cause, OSError) and clients & HUB_CLIENTS:
            return f"{environment} loads data from a hub, which is not here ({said}): {HUB_ADVICE}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from, outermost first."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _modules(error: BaseException) -> set[str]:
    """The top-level modules of the code that the error went through, and that of its class."""
    frames = traceback.walk_tb(error.__traceback__)
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    return {name.partition(".")[0] for name in (*names, type(error).__module__)}
