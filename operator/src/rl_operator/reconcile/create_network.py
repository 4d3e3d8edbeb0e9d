"""What environments in pods of their own need besides pods: a Service and two NetworkPolicies."""

from rl_operator.api.run import TrainingRun
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render import Templates, network_names


def network_missing(run: TrainingRun, client: RunClient) -> bool:
    """Whether somebody has to create some of it, as far as the caches know."""
    return run.status.environments is not None and not network_names(run) <= client.children(run.key)


async def create_network(run: TrainingRun, templates: Templates, client: RunClient) -> None:
    """Create what is missing of it; nothing while the run's only environment is inside its pod."""
    if run.status.environments is None:
        return
    there = client.children(run.key)
    for child in templates.network:
        if (child["kind"], child["metadata"]["name"]) not in there:
            await client.create_child(child)
