"""How environments in separate pods reach their run's pod, and that they reach nothing else."""

import ipaddress
from typing import Any, Final

from rl_operator.api.environment import is_own
from rl_operator.api.names import (
    API_CONTAINER,
    ENVIRONMENT_COMPONENT,
    ENVIRONMENT_CONTAINER,
    TRAINER_CONTAINER,
    TRAINING_COMPONENT,
)
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import EgressRule, Runtime
from rl_operator.render.env_vars import API_PORT, INFERENCE_PORT, OPS_PORTS
from rl_operator.render.labels import child_labels, owner_reference, pods_of_component

TRAINER_POLICY: Final = "trainer"
ENVIRONMENT_POLICY: Final = "environment"

DATA_PORTS: Final = (API_PORT, INFERENCE_PORT)

RESOLVERS: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7")
"""Where DNS resolvers run besides pods: on nodes, and on the node-local address. Not on the internet: a port 53 there
may be anything.
"""

METADATA: Final = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128")
"""Link-local addresses and what clouds serve there and nearby: credentials of the node."""


def service_name(run: TrainingRun) -> str:
    return f"{run.metadata.name}-{run.metadata.uid[:5]}"


def service_host(run: TrainingRun) -> str:
    """The name of the run's pod for its environments."""
    return f"{service_name(run)}.{run.metadata.namespace}.svc"


def network_names(run: TrainingRun) -> frozenset[tuple[str, str]]:
    """Kind and name of the objects that `network_children` returns."""
    name = service_name(run)
    policies = (f"{name}-{component}" for component in (TRAINER_POLICY, ENVIRONMENT_POLICY))
    return frozenset({("Service", name), *(("NetworkPolicy", policy) for policy in policies)})


def network_children(run: TrainingRun, runtime: Runtime) -> list[dict[str, Any]]:
    """The NetworkPolicies, then the Service: the policies exist before there is anything to connect to."""
    return [_trainer_policy(run), _environment_policy(run, runtime), _service(run)]


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
    return _child(run, "v1", "Service", service_name(run)) | {"spec": spec}


def _trainer_policy(run: TrainingRun) -> dict[str, Any]:
    """For the run's pod: its data ports are for its environments, its ops ports for everyone."""
    environments = {"podSelector": pods_of_component(run, ENVIRONMENT_COMPONENT)}
    inside = [API_CONTAINER, TRAINER_CONTAINER, *([] if is_own(run.spec.environment) else [ENVIRONMENT_CONTAINER])]
    spec = {
        "podSelector": pods_of_component(run, TRAINING_COMPONENT),
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [environments], "ports": _tcp(*DATA_PORTS)},
            {"ports": _tcp(*(OPS_PORTS[name] for name in inside))},
        ],
    }
    return _policy(run, TRAINER_POLICY, spec)


def _environment_policy(run: TrainingRun, runtime: Runtime) -> dict[str, Any]:
    """For the environments' pods: the run's pod, DNS, and what the runtime allows."""
    dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    resolvers = [{"namespaceSelector": {}}, *({"ipBlock": {"cidr": cidr}} for cidr in RESOLVERS)]
    spec = {
        "podSelector": pods_of_component(run, ENVIRONMENT_COMPONENT),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": _tcp(OPS_PORTS["environment"])}],
        "egress": [
            {"to": [{"podSelector": pods_of_component(run, TRAINING_COMPONENT)}], "ports": _tcp(*DATA_PORTS)},
            {"to": resolvers, "ports": dns},
            *(_egress(rule) for rule in runtime.spec.environment_egress),
        ],
    }
    return _policy(run, ENVIRONMENT_POLICY, spec)


def _egress(rule: EgressRule) -> dict[str, Any]:
    block = {"cidr": rule.cidr, "except": _metadata_within(rule.cidr)}
    peer = {"ipBlock": {name: value for name, value in block.items() if value}}
    return {"to": [peer], **({"ports": _tcp(*rule.ports)} if rule.ports else {})}


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


def _tcp(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _policy(run: TrainingRun, component: str, spec: dict[str, Any]) -> dict[str, Any]:
    name = f"{service_name(run)}-{component}"
    return _child(run, "networking.k8s.io/v1", "NetworkPolicy", name) | {"spec": spec}


def _child(run: TrainingRun, api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": run.metadata.namespace,
            "labels": child_labels(run, "network"),
            "ownerReferences": [owner_reference(run)],
        },
    }
