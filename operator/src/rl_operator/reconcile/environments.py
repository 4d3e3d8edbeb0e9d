"""Bring a run's environment pods, and what they need, to where they should be."""

from rl_operator.errors import InvalidError
from rl_operator.reconcile.network import create_network, network_missing
from rl_operator.reconcile.world import World
from rl_operator.render import Templates, environment_pod, templates_of
from rl_operator.status.environments import plan_environments
from rl_operator.status.view import View


async def tend_environments(view: View, world: World) -> None:
    """Delete what is needless, create what is missing, one step after the other: any of them may be the last."""
    plan = plan_environments(view)
    for pod in plan.delete:
        await world.delete_pod(pod)
    if not plan.create and not (view.training and network_missing(view.run, world)):
        return
    templates = await _frozen_templates(view, world)
    await create_network(view.run, templates, world)
    for place in plan.create:
        attempt = view.run.status.attempt or 1
        await world.create_child(environment_pod(templates.environment, attempt, place.slot, place.incarnation))


async def _frozen_templates(view: View, world: World) -> Templates:
    name, namespace = view.run.status.config_map_name or "", view.run.metadata.namespace
    config_map = await world.read_config_map(namespace, name)
    if config_map is None:
        raise InvalidError(f"ConfigMap {namespace}/{name} is gone: without it the run gets no new environment pods")
    return templates_of(config_map)
