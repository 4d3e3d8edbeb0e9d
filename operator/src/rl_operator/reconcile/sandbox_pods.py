"""Bring a run's sandbox pods to their desired state, with the Service and the NetworkPolicy that they need."""

from rl_operator.errors import InvalidError
from rl_operator.reconcile.attempt import create_sandbox_network, frozen_templates, require_alive
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render import sandbox_network_names, sandbox_pod
from rl_operator.status.attempt.sandbox_slots import plan_sandboxes
from rl_operator.status.attempt.view import View


async def reconcile_sandbox_pods(view: View, client: RunClient) -> None:
    """Create what is missing, then delete what has a successor: the successor counts on from it."""
    plan = plan_sandboxes(view)
    if plan.create or _walls_are_missing(view, client):
        if not plan.create:
            await require_alive(view.run, client)
        templates = await frozen_templates(view.run, client)
        if templates is None or templates.sandbox is None:
            name = f"{view.run.metadata.namespace}/{view.run.status.config_map_name}"
            raise InvalidError(f"ConfigMap {name} is gone: without it the run gets no new sandboxes")
        await create_sandbox_network(view.run, templates, client)
        for place in plan.create:
            pod = sandbox_pod(templates.sandbox, view.run.status.attempt or 1, place.slot, place.incarnation)
            await client.create_child(pod)
    for each in plan.delete:
        await client.delete_pod(each)


def _walls_are_missing(view: View, client: RunClient) -> bool:
    asks = view.run.spec.sandbox is not None and view.training
    return asks and not sandbox_network_names(view.run) <= client.children(view.run.key)
