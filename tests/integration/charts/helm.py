"""The real helm, as a person runs it."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.integration.cluster.control_plane import ROOT, find_program

CHARTS = ROOT / "charts"
OPERATOR_CHART = CHARTS / "rl-operator"
RUNTIMES_CHART = CHARTS / "rl-runtimes"

HOW_TO_GET = "needs helm: install it (https://helm.sh), or put it into the folder that KUBEBUILDER_ASSETS names"

Document = dict[str, Any]


class HelmError(Exception):
    """What helm complained of."""


class Helm:
    """Its caches are in `home`, so that nobody's own are touched; without a kubeconfig it reaches no cluster."""

    def __init__(self, home: Path, kubeconfig: str = os.devnull) -> None:
        places = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        self._env_vars = {**os.environ, **places, "KUBECONFIG": kubeconfig}

    @staticmethod
    def there() -> bool:
        return find_program("helm") is not None

    def __call__(self, *arguments: str | Path, seconds: float = 200) -> str:
        """What it printed. Raises HelmError with what it complained of."""
        program = find_program("helm")
        assert program, HOW_TO_GET
        done = subprocess.run(
            [program, *map(str, arguments)],
            env=self._env_vars,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise HelmError(f"helm {' '.join(map(str, arguments))}: {done.stderr}{done.stdout}")
        return done.stdout

    def template(
        self, chart: Path, values: Mapping[str, Any], *, release: str = "rl-operator", namespace: str = "ops"
    ) -> str:
        """The objects of a release, its test's among them."""
        return self("template", release, chart, "--namespace", namespace, *flags(values))

    def rendered(self, chart: Path, values: Mapping[str, Any]) -> list[Document]:
        documents = yaml.load_all(self.template(chart, values), Loader=yaml.CSafeLoader)  # ten times as fast
        return [document for document in documents if document]


def flags(values: Mapping[str, Any]) -> list[str]:
    """Values by dotted path, as flags."""
    return [f"--set-json={path}={json.dumps(value)}" for path, value in values.items()]


def of_kind(documents: list[Document], kind: str, name: str = "") -> Document:
    """The one of that kind, or the one of them with that name."""
    (found,) = (each for each in documents if each["kind"] == kind and name in ("", each["metadata"]["name"]))
    return found
