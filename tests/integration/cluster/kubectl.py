"""The real kubectl, as a user runs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.cluster.control_plane import find_program

SECONDS = 100.0


@dataclass(frozen=True)
class Answer:
    code: int
    objects: tuple[dict[str, Any], ...]
    """What `-o json` printed, lists unpacked."""

    complaints: str


class Kubectl:
    def __init__(self, kubeconfig: Path, cache: Path) -> None:
        self._kubeconfig = kubeconfig
        self._cache = cache

    @staticmethod
    def there() -> bool:
        return find_program("kubectl") is not None

    def __call__(self, *arguments: str) -> Answer:
        """Run it with `-o json`; the caller handles exit codes other than 0."""
        program = find_program("kubectl")
        assert program, "kubectl is on PATH or in KUBEBUILDER_ASSETS"
        flags = [f"--kubeconfig={self._kubeconfig}", f"--cache-dir={self._cache}", "-o", "json"]
        done = subprocess.run(
            [program, *arguments, *flags],
            env={**os.environ, "KUBECONFIG": str(self._kubeconfig)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Answer(done.returncode, tuple(_objects(done.stdout)), done.stderr)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The consecutive JSON texts."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, at)
        yield from document["items"] if document["kind"] == "List" else [document]
        at += len(text[at:]) - len(text[at:].lstrip())
