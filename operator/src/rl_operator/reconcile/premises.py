"""Gather what a run is checked against and rendered from."""

from datetime import datetime

from rl_operator.api.premises import Premises, choose_environment
from rl_operator.api.run import TrainingRun
from rl_operator.reconcile.lineage import gather_parent
from rl_operator.reconcile.world import PremisesSource


async def gather_premises(run: TrainingRun, world: PremisesSource, now: datetime) -> Premises | None:
    """From the caches, except for a parent that is over; None when the run's runtime does not exist."""
    runtime = world.runtime(run.spec.runtime)
    if runtime is None:
        return None
    own = world.environment(run)
    catalog = world.catalog(runtime)
    return Premises(
        runtime=runtime,
        environment=choose_environment(run.spec.environment, runtime, catalog, own),
        namespace_labels=world.namespace_labels(run.metadata.namespace),
        parent=await gather_parent(run, world, now),
    )
