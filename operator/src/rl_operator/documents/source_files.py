"""The files of an own environment, as values: their names, the entry file, their hash."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rl_contract.content_hash import sha256_of_texts
from rl_operator.api.catalog import CatalogProblem

_NAME: Final = re.compile(r"[A-Za-z0-9_][-._A-Za-z0-9]{0,252}")
"""A ConfigMap's keys, without those that begin with a dot or a dash."""

_RULE: Final = "use letters, digits, '_', '-' and '.', no folders, and at most 253 characters"
_MAX_LISTED: Final = 10
_MAX_SHOWN: Final = 80


def source_hash(files: Mapping[str, str]) -> str:
    """12 hex digits of names and contents, independent of their order."""
    return short_source_hash(sha256_of_texts(files))


def short_source_hash(sha256: str) -> str:
    return sha256[:12]


def source_problem(files: Mapping[str, str], entry: str | None) -> CatalogProblem | None:
    """Why these files cannot even be read: an invalid name, no entry, or several candidates for it."""
    for name in files:
        if not _NAME.fullmatch(name):
            return _problem("Unreadable", name, f"this is not a valid name for an environment's file: {_RULE}")
    python = [name for name in sorted(files) if name.endswith(".py")]
    if entry is None:
        return _no_entry(python, files)
    if entry not in files:
        return _problem("NoEnvironment", entry, f"there is no such file ({_listed(files)}): correct the entry")
    if not entry.endswith(".py"):
        return _problem("NoEnvironment", entry, f"an entry is a Python file, its name ends with .py ({_listed(files)})")
    return None


def chosen_entry(files: Mapping[str, str], entry: str | None) -> str:
    """The named file, or the only Python file. The files must be without a `source_problem`."""
    return entry or next(name for name in files if name.endswith(".py"))


def _no_entry(python: list[str], files: Mapping[str, str]) -> CatalogProblem | None:
    if not python:
        return _problem("NoEnvironment", "", f"there is no Python file ({_listed(files)}): add one that ends with .py")
    if len(python) > 1:
        hint = f"several files could be the environment ({_listed(python)}): name one of them as the entry"
        return _problem("SeveralEnvironments", python[0], hint)
    return None


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - _MAX_LISTED} more" if len(every) > _MAX_LISTED else ""
    return f"files: {', '.join(every[:_MAX_LISTED])}{more}" if every else "there are no files at all"


def _problem(reason: str, file: str, message: str) -> CatalogProblem:
    return CatalogProblem(reason=reason, file=ascii(file)[1:-1][:_MAX_SHOWN], message=message)
