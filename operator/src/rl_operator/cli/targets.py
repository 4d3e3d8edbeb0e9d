"""From what was typed to a run or a file's content."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rl_operator.cli.backend import BackEnd, Manifest
from rl_operator.cli.exits import RefusedError

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun


def existing_run(backend: BackEnd, namespace: str, name: str) -> Manifest:
    """Raises RefusedError naming the runs that there are."""
    run = backend.run(namespace, name)
    if run is not None:
        return run
    names = [each["metadata"]["name"] for each in backend.runs(namespace, "")]
    known = f"there are: {', '.join(sorted(names)[:10])}" if names else "there are none"
    raise RefusedError(f"there is no run {name!r} in namespace {namespace} of {backend.label}; {known}")


def read_run_file(path: Path) -> "TrainingRun":
    """The one run of a file (`-`: stdin). Raises RefusedError and DocumentError."""
    from rl_operator.api.loading import load_run

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RefusedError(f"{path} is no text file: a run is YAML in UTF-8") from None
    return load_run(text)
