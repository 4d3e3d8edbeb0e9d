"""How environments in separate pods reach their run's pod, and that they reach little else."""

import ipaddress
import itertools
from typing import Any, Final

from rl_operator.api.environment import runs_apart
from rl_operator.api.metadata_addresses import METADATA
from rl_operator.api.names import (
    API_CONTAINER,
    ENVIRONMENT_COMPONENT,
    ENVIRONMENT_CONTAINER,
    SANDBOX_COMPONENT,
    TRAINER_CONTAINER,
    TRAINING_COMPONENT,
)
from rl_operator.api.run import TrainingRun
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import EgressRule
from rl_operator.render.env_vars import API_PORT, INFERENCE_PORT, OPS_PORTS, SANDBOX_PORT
from rl_operator.render.labels import pods_of_component
from rl_operator.render.network.network_objects import network_child, network_policy, service_name, tcp_ports
from rl_operator.render.network.server_egress import server_peers, server_port

TRAINER_POLICY: Final = "trainer"
ENVIRONMENT_POLICY: Final = "environment"

DATA_PORTS: Final = (API_PORT, INFERENCE_PORT)

RESOLVERS: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7")
"""Where DNS resolvers run besides pods: on nodes, and on the node-local address. Not on the internet: a port 53 there
may be anything.
"""


def service_host(run: TrainingRun) -> str:
    """The name of the run's pod for its environments."""
    return f"{service_name(run)}.{run.metadata.namespace}.svc"


def network_names(run: TrainingRun) -> frozenset[tuple[str, str]]:
    """Kind and name of the objects that `network_children` returns."""
    name = service_name(run)
    policies = (f"{name}-{component}" for component in (TRAINER_POLICY, ENVIRONMENT_POLICY))
    return frozenset({("Service", name), *(("NetworkPolicy", policy) for policy in policies)})


def network_children(run: TrainingRun, inputs: RunInputs) -> list[dict[str, Any]]:
    """The NetworkPolicies, then the Service: the policies exist before there is anything to connect to."""
    return [_trainer_policy(run), _environment_policy(run, inputs), _service(run)]


def resolves_names(inputs: RunInputs) -> bool:
    """Whether environments in their own pods may ask DNS, through which a name can carry data out.

    An OpenEnv image is nobody's code here, and needs no name but that of the run's pod, unless it is let out.
    """
    openenv = inputs.environment.own.spec.openenv if inputs.environment.own else None
    return openenv is None or not openenv.runs_beside or bool(inputs.runtime.spec.environment_egress)


def _service(run: TrainingRun) -> dict[str, Any]:
    """Headless: one pod is behind it. Its address is published at once, or nothing could wait for it to be ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": pods_of_component(run, TRAINING_COMPONENT)["matchLabels"],
        "ports": [
            {"name": "api", "port": API_PORT, "protocol": "TCP"},
            {"name": "inference", "port": INFERENCE_PORT, "protocol": "TCP"},
        ],
    }
    return network_child(run, "v1", "Service", service_name(run)) | {"spec": spec}


def _trainer_policy(run: TrainingRun) -> dict[str, Any]:
    """For the run's pod: its data ports are for its environments, its ops ports for everyone."""
    environments = {"podSelector": pods_of_component(run, ENVIRONMENT_COMPONENT)}
    inside = [API_CONTAINER, TRAINER_CONTAINER, *([] if runs_apart(run.spec.environment) else [ENVIRONMENT_CONTAINER])]
    spec = {
        "podSelector": pods_of_component(run, TRAINING_COMPONENT),
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [environments], "ports": tcp_ports(*DATA_PORTS)},
            {"ports": tcp_ports(*(OPS_PORTS[name] for name in inside))},
        ],
    }
    return network_policy(run, TRAINER_POLICY, spec)


def _environment_policy(run: TrainingRun, inputs: RunInputs) -> dict[str, Any]:
    """For the environments' pods: the run's pod, its sandboxes, DNS, an OpenEnv server elsewhere, and what the runtime
    allows.
    """
    sandboxes = {"to": [{"podSelector": pods_of_component(run, SANDBOX_COMPONENT)}], "ports": tcp_ports(SANDBOX_PORT)}
    spec = {
        "podSelector": pods_of_component(run, ENVIRONMENT_COMPONENT),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": tcp_ports(OPS_PORTS["environment"])}],
        "egress": [
            {"to": [{"podSelector": pods_of_component(run, TRAINING_COMPONENT)}], "ports": tcp_ports(*DATA_PORTS)},
            *([sandboxes] if run.spec.sandbox else []),
            *_dns(inputs),
            *_server(inputs),
            *(_egress(rule) for rule in inputs.runtime.spec.environment_egress),
        ],
    }
    return network_policy(run, ENVIRONMENT_POLICY, spec)


def _dns(inputs: RunInputs) -> list[dict[str, Any]]:
    if not resolves_names(inputs):
        return []
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return [{"to": [{"namespaceSelector": {}}, *({"ipBlock": {"cidr": cidr}} for cidr in RESOLVERS)], "ports": ports}]


def _server(inputs: RunInputs) -> list[dict[str, Any]]:
    own = inputs.environment.own
    url = own.spec.openenv.url if own and own.spec.openenv else None
    if url is None:
        return []
    peers, ranges = server_peers(url)
    blocks = (_egress(EgressRule(cidr=cidr))["to"] for cidr in ranges)
    return [{"to": [*peers, *itertools.chain.from_iterable(blocks)], "ports": tcp_ports(server_port(url))}]


def _egress(rule: EgressRule) -> dict[str, Any]:
    block = {"cidr": rule.cidr, "except": _metadata_within(rule.cidr)}
    peer = {"ipBlock": {name: value for name, value in block.items() if value}}
    return {"to": [peer], **({"ports": tcp_ports(*rule.ports)} if rule.ports else {})}


def _metadata_within(cidr: str) -> list[str]:
    """What a wide range would let in by accident; a range that is no wider is meant as it is.

    Anything that is not a range is left for the API server to reject.
    """
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return []
    return [each for each in METADATA if _strictly_within(ipaddress.ip_network(each), network)]


def _strictly_within(
    inner: ipaddress.IPv4Network | ipaddress.IPv6Network, outer: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> bool:
    overlaps = inner.version == outer.version and inner.overlaps(outer)
    return overlaps and inner.prefixlen > outer.prefixlen
