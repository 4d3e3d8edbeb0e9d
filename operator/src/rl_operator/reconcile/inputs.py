"""Gather what a run is checked against and rendered from."""

from datetime import datetime

from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.reconcile.parent_run import gather_parent
from rl_operator.reconcile.run_client import InputSource


async def gather_inputs(run: TrainingRun, client: InputSource, now: datetime) -> RunInputs | None:
    """From the caches, except for a parent that is over; None when the run's runtime does not exist."""
    runtime = client.runtime(run.spec.runtime)
    if runtime is None:
        return None
    own = client.environment(run)
    catalog = client.catalog(runtime)
    return RunInputs(
        runtime=runtime,
        environment=choose_environment(run.spec.environment, runtime, catalog, own),
        namespace_labels=client.namespace_labels(run.metadata.namespace),
        parent=await gather_parent(run, client, now),
    )
