"""A run's series as an object: created at the first attempt's end, gone on with at the next ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_operator.api.run import TrainingRun
from rl_operator.cluster.client import ClusterClient
from rl_operator.cluster.creation import controller_uid, create_ours
from rl_operator.cluster.resources import CONFIG_MAPS
from rl_operator.errors import NameTakenError
from rl_operator.render.history_map import history_config_map, history_content, stored_history
from rl_operator.status.observed.history import Point, joined, read_points, thinned


async def write_history(
    client: ClusterClient, run: TrainingRun, points: Sequence[Point], existing: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The ConfigMap as it is now. `existing` is what earlier attempts left.

    Raises NameTakenError when it is not this run's.
    """
    name, namespace = run.status.history_name or "", run.metadata.namespace
    if existing is None:
        return await create_ours(client, history_config_map(run, name, thinned(points)))
    if controller_uid(existing) != run.metadata.uid:
        raise NameTakenError(f"ConfigMap {namespace}/{name} exists and is not this run's")
    metadata = existing["metadata"]
    merged = thinned(joined(read_points(stored_history(existing)), points))
    body = {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "data": history_content(merged),
    }
    return await client.patch(CONFIG_MAPS.path(namespace, name), body)
