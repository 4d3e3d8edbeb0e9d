"""Bring a run's environment pods to their desired state, with the Service and NetworkPolicies that they need."""

from typing import Final

from rl_operator.api.run import TrainingRun
from rl_operator.errors import InvalidError
from rl_operator.reconcile.attempt import any_vanishes, create_network, frozen_templates, require_alive
from rl_operator.reconcile.run_client import RunClient
from rl_operator.render import Templates, environment_pod, network_names, share_env_vars, with_share
from rl_operator.status.attempt.environment_slots import plan_environments
from rl_operator.status.attempt.view import View

_CONSEQUENCE: Final = "without it the run gets no new environment pods; start a new run in its place"


async def reconcile_environment_pods(view: View, client: RunClient) -> None:
    """Delete what is not needed, create what is missing, step by step: any step may be the last."""
    plan = plan_environments(view)
    for pod in plan.delete:
        await client.delete_pod(pod)
    if not plan.create and not (view.training and network_missing(view.run, client)):
        return
    if not plan.create or any_vanishes(view.environments):
        await require_alive(view.run, client)
    templates = await frozen_templates(view.run, client)
    if templates is None:
        name = view.run.status.config_map_name
        raise InvalidError(f"ConfigMap {view.run.metadata.namespace}/{name} is gone: {_CONSEQUENCE}")
    await create_network(view.run, templates, client)
    if plan.create:
        _require_config_maps(view, templates, client)
    for place in plan.create:
        assert view.pod is not None, "environments follow the run's pod"
        assert view.pod.address is not None, "and wait for its address"
        where = (view.run.status.attempt or 1, place.slot, place.incarnation)
        environment = environment_pod(templates.environment, *where, view.pod.address)
        await client.create_child(with_share(environment, share_env_vars(view.run, place.slot)))


def _require_config_maps(view: View, templates: Templates, client: RunClient) -> None:
    """A pod whose ConfigMap is gone would wait forever and not report why."""
    volumes = templates.environment["spec"]["volumes"]
    mounted = {("ConfigMap", volume["configMap"]["name"]) for volume in volumes if "configMap" in volume}
    for _, name in sorted(mounted - client.children(view.run.key)):
        raise InvalidError(f"ConfigMap {view.run.metadata.namespace}/{name} is gone: {_CONSEQUENCE}")


def network_missing(run: TrainingRun, client: RunClient) -> bool:
    """Whether any of it needs to be created, as far as the caches know."""
    return run.status.environments is not None and not network_names(run) <= client.children(run.key)
