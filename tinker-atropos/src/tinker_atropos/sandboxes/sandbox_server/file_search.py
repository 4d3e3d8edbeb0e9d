"""A search in files. It runs in a process of its own: a regular expression can take forever, and nothing ends it there
but a signal.
"""

import fnmatch
import json
import os
import re
import sys
from collections.abc import Iterator

from tinker_atropos.sandboxes.sandbox_server.sandbox_files import SandboxRequestError, opened

MAX_SEARCHED_BYTES = 2**20
MAX_LINE = 500


def find_text(folder: str, pattern: str, path: str, file_glob: str, limit: int) -> list[tuple[str, int, str]]:
    """Path, number and text of lines. Raises SandboxRequestError."""
    try:
        sought = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SandboxRequestError(f"the pattern is not a regular expression: {error}") from None
    found: list[tuple[str, int, str]] = []
    for file in _files(os.path.join(folder, path), file_glob):
        try:
            with opened(file, os.O_RDONLY) as stream:
                text = stream.read(MAX_SEARCHED_BYTES).decode(errors="replace")
        except (OSError, SandboxRequestError):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if sought.search(line[:MAX_LINE]):
                found.append((_shown(file, folder), number, line[:MAX_LINE]))
                if len(found) >= limit:
                    return found
    return found


def find_files(folder: str, file_glob: str, path: str, limit: int) -> list[str]:
    """Newest first."""
    found = [(_changed(file), file) for file in _files(os.path.join(folder, path), file_glob)]
    return [_shown(file, folder) for _, file in sorted(found, reverse=True)[:limit]]


def main() -> None:
    """Standard input: a request of the server's, with its `folder`. Standard output: its answer."""
    request = json.load(sys.stdin)
    folder, path, limit, file_glob = (request[name] for name in ("folder", "path", "limit", "file_glob"))
    try:
        if request["method"] == "find_text":
            answer: dict[str, object] = {"result": find_text(folder, request["pattern"], path, file_glob, limit)}
        else:
            answer = {"result": find_files(folder, file_glob, path, limit)}
    except (SandboxRequestError, OSError, ValueError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


def _files(root: str, file_glob: str) -> Iterator[str]:
    if os.path.isfile(root):
        yield root
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in names if fnmatch.fnmatch(name, file_glob))


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _shown(file: str, folder: str) -> str:
    return os.path.relpath(file, folder)
