"""Run + runtime + environment -> config file, ConfigMaps, pods and network. Pure: equal inputs give equal bytes."""

from rl_operator.render.container_env_vars import checkpoint_env_vars, cost_env_vars, share_env_vars
from rl_operator.render.environment_pod import environment_pod
from rl_operator.render.manifests import Rendered, Templates, config_map_name, pod_name, render_run, templates_of
from rl_operator.render.network import network_names, sandbox_network_names
from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.sandbox_pod import sandbox_pod

__all__ = [
    "Rendered",
    "Templates",
    "checkpoint_env_vars",
    "config_map_name",
    "cost_env_vars",
    "environment_pod",
    "network_names",
    "pod_name",
    "pod_of_attempt",
    "render_run",
    "sandbox_network_names",
    "sandbox_pod",
    "share_env_vars",
    "templates_of",
]
