"""The ConfigMap that keeps a run's series past its pods."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rl_operator.api.run import TrainingRun
from rl_operator.render.labels import child_labels, owner_reference

HISTORY_KEY: Final = "history.json"
HISTORY_COMPONENT: Final = "history"


def history_config_map(run: TrainingRun, name: str, points: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Not immutable: a further attempt goes on with it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": run.metadata.namespace,
            "labels": child_labels(run, HISTORY_COMPONENT),
            "ownerReferences": [owner_reference(run)],
        },
        "data": history_content(points),
    }


def history_content(points: Sequence[Mapping[str, float]]) -> dict[str, str]:
    return {HISTORY_KEY: json.dumps({"points": list(points)}, separators=(",", ":"))}


def stored_history(config_map: Mapping[str, Any]) -> Any:
    """The document of such a ConfigMap; None when it holds none that can be read."""
    try:
        return json.loads((config_map.get("data") or {})[HISTORY_KEY])
    except (KeyError, TypeError, ValueError):
        return None
