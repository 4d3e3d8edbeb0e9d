"""Files -> the catalog of the one environment that they define, or the problem with them."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from rl_operator.api.catalog import Catalog, CatalogProblem
from rl_operator.discovery.child import Ended, run_limited
from rl_operator.documents.source_files import chosen_entry, source_problem
from rl_operator.errors import OperatorError
from rl_operator.programs import find_program

PROGRAM: Final = "tinker-atropos"
_USAGE: Final = 2


async def discover_files(files: Mapping[str, str], entry: str | None, *, program: str | None = None) -> Catalog:
    """What the entry (the only .py file where none is named) defines. Nothing of the files is run.

    Files that cannot be served give a catalog with a `problem`. Raises ProgramMissingError, or OperatorError when
    the program is one that cannot be asked this.
    """
    if problem := source_problem(files, entry):
        return Catalog(problem=problem)
    name, program = chosen_entry(files, entry), program or find_program(PROGRAM, os.environ.get("PATH"))
    with _workplace(files) as folder:
        ended = await run_limited(_arguments(program, folder, name), folder, os.environ)
    return _catalog(ended, name)


@contextlib.contextmanager
def _workplace(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder that goes away again: `source` in it holds the files."""
    with tempfile.TemporaryDirectory(prefix="rl-discovery-", ignore_cleanup_errors=True) as folder:
        source = Path(folder, "source")
        source.mkdir()
        for name, text in files.items():
            (source / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        yield Path(folder)


def _arguments(program: str, folder: Path, entry: str) -> list[str]:
    return [program, "environments", "--path", str(folder / "source"), "--entry", entry, "--output", "json"]


def _catalog(ended: Ended, entry: str) -> Catalog:
    if ended.code == _USAGE:
        raise OperatorError(f"{PROGRAM} cannot be asked for one file's environment ({ended.last_words}): upgrade it")
    if ended.code == 0:
        with contextlib.suppress(ValidationError):
            return Catalog.model_validate_json(ended.output)
    reason = ended.reason if ended.code != 0 else "the reader's answer is not a catalog"
    message = f"it cannot be read: {reason}; make the file smaller and simpler"
    return Catalog(problem=CatalogProblem(reason="Unreadable", file=entry, message=message))
