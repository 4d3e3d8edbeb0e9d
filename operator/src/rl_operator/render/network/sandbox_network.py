"""How a run's environments reach its sandboxes, and that nobody else does, and they nobody."""

from typing import Any, Final

from rl_operator.api.environment import runs_apart
from rl_operator.api.names import ENVIRONMENT_COMPONENT, SANDBOX_COMPONENT, TRAINING_COMPONENT
from rl_operator.api.run import TrainingRun
from rl_operator.render.env_vars import SANDBOX_PORT
from rl_operator.render.labels import pods_of_component
from rl_operator.render.network.network_objects import network_child, network_policy, service_name, tcp_ports

SANDBOX_POLICY: Final = "sandbox"


def sandbox_host(run: TrainingRun) -> str:
    """The name of the run's sandboxes for its environments: each connection leads to any of them."""
    return f"{_sandboxes_name(run)}.{run.metadata.namespace}.svc"


def _sandboxes_name(run: TrainingRun) -> str:
    """Of the Service: with a run's name of 52 characters it has 62, and 63 are allowed."""
    return f"{service_name(run)}-box"


def sandbox_network_names(run: TrainingRun) -> frozenset[tuple[str, str]]:
    """Kind and name of the objects that `sandbox_network_children` returns."""
    policy = f"{service_name(run)}-{SANDBOX_POLICY}"
    return frozenset({("Service", _sandboxes_name(run)), ("NetworkPolicy", policy)})


def sandbox_network_children(run: TrainingRun) -> list[dict[str, Any]]:
    """The NetworkPolicy of the sandboxes, then their Service."""
    service = network_child(run, "v1", "Service", _sandboxes_name(run))
    return [_sandbox_policy(run), service | {"spec": _sandbox_service(run)}]


def _sandbox_policy(run: TrainingRun) -> dict[str, Any]:
    """Only the pods that hold an environment get in, and nothing gets out, not even a look-up of a name."""
    holders = [ENVIRONMENT_COMPONENT, *([] if runs_apart(run.spec.environment) else [TRAINING_COMPONENT])]
    peers = [{"podSelector": pods_of_component(run, component)} for component in holders]
    spec = {
        "podSelector": pods_of_component(run, SANDBOX_COMPONENT),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": tcp_ports(SANDBOX_PORT)}],
        "egress": [],
    }
    return network_policy(run, SANDBOX_POLICY, spec)


def _sandbox_service(run: TrainingRun) -> dict[str, Any]:
    """Not headless: an environment connects until it has found a free one. The addresses behind a name would come by
    way of DNS, whose caches know a new sandbox up to half a minute late.
    """
    return {
        "selector": pods_of_component(run, SANDBOX_COMPONENT)["matchLabels"],
        "ports": [{"name": "sandbox", "port": SANDBOX_PORT, "protocol": "TCP"}],
    }
