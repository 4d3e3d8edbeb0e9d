"""A run's series in the state folder: the ConfigMap that a cluster would have."""

from collections.abc import Sequence

from rl_operator.api.run import TrainingRun
from rl_operator.local.state_store import Manifest, StateStore
from rl_operator.render.history_map import history_config_map, history_content, stored_history
from rl_operator.status.observed.history import Point, joined, read_points, thinned


def write_history(store: StateStore, run: TrainingRun, points: Sequence[Point]) -> None:
    """Create it, or go on with what earlier attempts left."""
    namespace, name = run.metadata.namespace, run.status.history_name or ""

    def go_on(manifest: Manifest) -> None:
        merged = thinned(joined(read_points(stored_history(manifest)), points))
        manifest["data"] = history_content(merged)

    if store.get("ConfigMap", namespace, name):
        store.update("ConfigMap", namespace, name, go_on)
    else:
        store.create(history_config_map(run, name, thinned(points)))
