"""Which `tinker-atropos` is installed, and what installs the same one elsewhere."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from rl_operator import programs
from rl_operator.operator_errors import RefusedError

DISTRIBUTION: Final = "tinker-atropos"
PROJECT_FILES: Final = ("pyproject.toml", "setup.cfg", "setup.py")
"""What a local folder is built from: if one changes, it has to be installed again."""


@dataclass(frozen=True, slots=True)
class Installed:
    """`origin` is what `direct_url.json` says (PEP 610); empty: it comes from an index. `stamp` changes when another
    one is installed.
    """

    version: str
    origin: Mapping[str, Any]
    stamp: str

    def arguments(self, extra: str) -> tuple[str, ...]:
        """Of `uv pip install`, for the same one with an extra (empty: none)."""
        extras = f"[{extra}]" if extra else ""
        if not self.origin:
            return (f"{DISTRIBUTION}{extras}=={self.version}",)
        if self.is_editable:
            return ("--editable", f"{self.folder}{extras}")
        return (f"{DISTRIBUTION}{extras} @ {self._reference}",)

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
    found = _distribution_of(Path(program))
    if found is None:
        raise RefusedError(
            f"{program} belongs to no installed distribution {DISTRIBUTION}, so no other environment can get the same "
            f"one; {programs.INSTALL_HINT}"
        )
    texts = {name: found.read_text(name) or "" for name in ("direct_url.json", "RECORD")}
    installed = Installed(found.version, json.loads(texts["direct_url.json"] or "{}"), "")
    project = project_hash(installed.folder) if installed.folder and installed.is_editable else ""
    parts = [found.version, texts, project, sys.version_info[:2]]
    return Installed(installed.version, installed.origin, stamp_of(parts))


def project_hash(folder: Path) -> str:
    """Of the files that say how a local folder is built, and what it requires."""
    files = [folder / name for name in PROJECT_FILES]
    return stamp_of([file.read_bytes().hex() if file.is_file() else None for file in files])


def stamp_of(parts: object) -> str:
    """Twelve digits that differ where the parts, as JSON, do."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _distribution_of(program: Path) -> metadata.Distribution | None:
    beside = program.parent == Path(sys.executable).parent
    places = [str(place) for place in program.resolve().parents[1].glob("lib/python*/*-packages")]
    return next(iter(metadata.distributions(name=DISTRIBUTION, path=sys.path if beside else places)), None)
