"""Bring a run's sandbox pods to their desired state, with the Service and the NetworkPolicy that they need."""

from rl_operator.errors import InvalidError
from rl_operator.reconcile.attempt import any_vanishes, create_sandbox_network, frozen_templates, require_alive
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render import sandbox_network_names, sandbox_pod
from rl_operator.status.attempt.sandbox_slots import plan_sandboxes
from rl_operator.status.attempt.view import View


async def reconcile_sandbox_pods(view: View, client: RunClient) -> None:
    """Delete what has a successor, so that a quota has room, then create what is missing, step by step."""
    plan = plan_sandboxes(view)
    for each in plan.delete:
        await client.delete_pod(each)
    if plan.create or _walls_are_missing(view, client):
        if not plan.create or any_vanishes(view.sandboxes):
            await require_alive(view.run, client)
        templates = await frozen_templates(view.run, client)
        if templates is None or templates.sandbox is None:
            name = f"ConfigMap {view.run.metadata.namespace}/{view.run.status.config_map_name}"
            what = "is gone" if templates is None else "holds no sandboxes: the runtime had none when the run started"
            raise InvalidError(f"{name} {what}; the run gets no new ones, so start a new run in its place")
        await create_sandbox_network(view.run, templates, client)
        for place in plan.create:
            pod = sandbox_pod(templates.sandbox, view.run.status.attempt or 1, place.slot, place.incarnation)
            await client.create_child(pod)


def _walls_are_missing(view: View, client: RunClient) -> bool:
    asks = view.run.spec.sandbox is not None and view.training
    return asks and not sandbox_network_names(view.run) <= client.children(view.run.key)
