"""Run + runtime + environment -> config file, ConfigMap and pod. Pure: equal inputs give equal bytes."""

from rl_operator.render.pod import pod_of_attempt
from rl_operator.render.run import Rendered, config_map_name, pod_name, render_run, template_of

__all__ = ["Rendered", "config_map_name", "pod_name", "pod_of_attempt", "render_run", "template_of"]
