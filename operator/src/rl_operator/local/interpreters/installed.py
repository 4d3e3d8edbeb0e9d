"""Which `tinker-atropos` is installed, and what installs the same one elsewhere."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rl_operator import programs
from rl_operator.errors import RefusedError
from rl_operator.local.interpreters import distribution_facts
from rl_operator.local.interpreters.distribution_facts import DISTRIBUTION

PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
"""What a local folder is built from: if one changes, it has to be installed again."""


@dataclass(frozen=True, slots=True)
class Installed:
    """`origin` is what pip wrote into `direct_url.json` (PEP 610); empty: it comes from an index. `stamp` changes when
    another one is installed.
    """

    version: str
    origin: Mapping[str, Any]
    stamp: str

    def arguments(self, extra: str) -> tuple[str, ...]:
        """Of `pip install`, for the same one with an extra (empty: none). Raises RefusedError if its source is gone."""
        name = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
        if not self.origin:
            return (f"{name}=={self.version}",)
        folder = self.folder
        if folder is not None and not folder.exists():
            raise RefusedError(
                f"{DISTRIBUTION} was installed from {folder}, which is gone: install it again beside rlctl, so that "
                "another environment can get the same one"
            )
        if folder is not None and self.is_editable:
            return ("--editable", f"{folder}[{extra}]" if extra else str(folder))
        return (f"{name} @ {self._reference}",)

    @property
    def folder(self) -> Path | None:
        """The folder or archive on this machine that it was installed from."""
        url = urlsplit(self.origin.get("url", ""))
        return Path(unquote(url.path)) if url.scheme == "file" else None

    @property
    def is_editable(self) -> bool:
        return bool(self.origin.get("dir_info", {}).get("editable"))

    @property
    def told(self) -> str:
        """`0.1.0 (editable, /src/tinker-atropos)`."""
        if not self.origin:
            return self.version
        how = "editable, " if self.is_editable else ""
        return f"{self.version} ({how}{self.folder or self._reference})"

    @property
    def _reference(self) -> str:
        url, version = str(self.origin["url"]), self.origin.get("vcs_info")
        if version:
            url = f"{version['vcs']}+{url}@{version['commit_id']}"
        inside = self.origin.get("subdirectory")
        return f"{url}#subdirectory={inside}" if inside else url


def read_installed(program: str) -> Installed:
    """That of a program `tinker-atropos`, which need not be beside this Python. Raises RefusedError."""
    known = _facts_of(program)
    origin: dict[str, Any] = json.loads(known["direct_url.json"]) if known["direct_url.json"] else {}
    found = Installed(known["version"], origin, "")
    project = project_hash(found.folder) if found.folder and found.is_editable else ""
    python = ".".join(map(str, sys.version_info[:2]))
    stamp = hashlib.sha256(json.dumps([known, project, python], sort_keys=True).encode()).hexdigest()[:12]
    return Installed(found.version, origin, stamp)


def project_hash(folder: Path) -> str:
    """Of the files that say how a local folder is built, and what it requires."""
    digest = hashlib.sha256()
    for name in PROJECT_FILES:
        file = folder / name
        digest.update(name.encode() + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()[:12]


def _facts_of(program: str) -> dict[str, str]:
    folder = Path(program).parent
    if folder == Path(sys.executable).parent:
        try:
            return distribution_facts.facts()
        except metadata.PackageNotFoundError:
            raise _unknown(program) from None
    python = programs.python_beside(program)
    if python is None:
        raise _unknown(program)
    command: list[str | Path] = [python, "-P", distribution_facts.__file__]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- the program's own Python
    if ended.returncode:
        raise _unknown(program)
    facts: dict[str, str] = json.loads(ended.stdout)
    return facts


def _unknown(program: str) -> RefusedError:
    return RefusedError(
        f"{program} belongs to no installed distribution {DISTRIBUTION}, so no other environment can get the same one; "
        f"{programs.INSTALL_HINT}"
    )
