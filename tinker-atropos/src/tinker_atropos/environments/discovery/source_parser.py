"""One file -> a syntax tree. The content of the file is not trusted."""

import ast
import warnings
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from typing import Literal

MAX_BYTES = 2 * 1024 * 1024
"""Larger files are not handwritten source, and a tree takes a hundred times their size."""

Reason = Literal[
    "SyntaxError", "NoEnvironment", "SeveralEnvironments", "WrongConfigClass", "NotImportable", "Unreadable"
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file cannot be served. `file` is relative to the searched folder; lines count from 1."""

    reason: Reason
    file: str
    line: int | None
    message: str

    @property
    def sentence(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class UnreadableSourceError(Exception):
    """The file cannot be parsed."""

    def __init__(self, reason: Reason, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.line = line

    def as_problem(self, file: str) -> Problem:
        return Problem(self.reason, file, self.line, self.message)


def parse_file(path: Path) -> ast.Module:
    """Raises UnreadableSourceError and nothing else."""
    return parse(_decoded(_read(path)))


def parse(text: str) -> ast.Module:
    """Raises UnreadableSourceError and nothing else."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _unreadable("it holds a null byte: save it as UTF-8 text", line)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a user's docstring does not matter here
            return ast.parse(text)
    except SyntaxError as error:
        raise UnreadableSourceError("SyntaxError", _syntax_message(error), error.lineno) from None
    except (RecursionError, MemoryError):
        raise _unreadable("its expressions are nested too deeply to be read, or too many") from None
    except ValueError as error:  # surrogates, from an encoding that has them
        raise _unreadable(f"it is not text: {error}") from None


def compile_problem(tree: ast.Module) -> UnreadableSourceError | None:
    """Errors that only the compiler finds, like a `return` outside a function. The code object is not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<source>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return UnreadableSourceError("SyntaxError", _syntax_message(error), error.lineno)
    except (RecursionError, MemoryError, ValueError) as error:
        return _unreadable(f"it cannot be compiled: {error or type(error).__name__}")
    return None


def _syntax_message(error: SyntaxError) -> str:
    return f"this is not valid Python: {error.msg}"


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise _unreadable("it is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(f"it cannot be opened: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise _unreadable(f"it is larger than {MAX_BYTES // 1024} KiB: keep data in files that are not Python")
    return content


def _decoded(content: bytes) -> str:
    try:
        return decode_source(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _unreadable(f"it is not {error.encoding} text: save it as UTF-8", line) from None
    except (SyntaxError, LookupError, ValueError) as error:
        message = getattr(error, "msg", None) or str(error)
        raise _unreadable(f"its encoding cannot be read ({message}): save it as UTF-8", 1) from None


def _unreadable(message: str, line: int | None = None) -> UnreadableSourceError:
    return UnreadableSourceError("Unreadable", message, line)
