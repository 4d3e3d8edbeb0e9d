"""A run's series in the state folder: the ConfigMap that a cluster would have."""

from collections.abc import Sequence

from rl_operator.api.run import TrainingRun
from rl_operator.local.state_store import Manifest, StateStore
from rl_operator.render.history_map import series_config_map, series_content, stored_series
from rl_operator.status.history import Point, joined, read_points, thinned


def write_series(store: StateStore, run: TrainingRun, points: Sequence[Point]) -> None:
    """Create it, or go on with what earlier attempts left."""
    namespace, name = run.metadata.namespace, run.status.history_name or ""

    def go_on(manifest: Manifest) -> None:
        merged = thinned(joined(read_points(stored_series(manifest)), points))
        manifest["data"] = series_content(merged)

    if store.get("ConfigMap", namespace, name):
        store.update("ConfigMap", namespace, name, go_on)
    else:
        store.create(series_config_map(run, name, thinned(points)))
