"""Runs as the API server holds them in every situation."""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[3] / "data" / "statuses"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def recorded(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return manifest
