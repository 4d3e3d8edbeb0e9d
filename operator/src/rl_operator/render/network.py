"""Who reaches a run's pods: the operator and whom the platform names at the ops ports; environments and sandboxes in
separate pods at what they need of each other, and little else.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from rl_contract.processes import API_PORT, INFERENCE_PORT, OPS_PORTS, SANDBOX_PORT
from rl_operator.api import kubernetes_objects as k8s
from rl_operator.api import names
from rl_operator.api.environment import METADATA, runs_apart
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.runtime import EgressRule
from rl_operator.api.training_run import TrainingRun
from rl_operator.render.labels import child_metadata, pods_of_component

Rules = list[k8s.PolicyRule]


def service_name(run: TrainingRun) -> str:
    return f"{run.metadata.name}-{run.metadata.uid[:5]}"


def network_service(run: TrainingRun, name: str, spec: k8s.ServiceSpec) -> k8s.ServiceObject:
    return {"apiVersion": "v1", "kind": "Service", "metadata": child_metadata(run, name, "network"), "spec": spec}


def network_policy(
    run: TrainingRun, name: str, pods: k8s.PodSelector, ingress: Rules, egress: Rules | None = None
) -> k8s.NetworkPolicyObject:
    return _policy(child_metadata(run, f"{service_name(run)}-{name}", "network"), pods, ingress, egress)


def _policy(
    metadata: k8s.ManifestMetadata, pods: k8s.PodSelector, ingress: Rules, egress: Rules | None
) -> k8s.NetworkPolicyObject:
    """`egress` None: its pods reach whom they like."""
    spec: k8s.NetworkPolicySpec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress}
    if egress is not None:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": egress}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def tcp_ports(*ports: int) -> list[k8s.NetworkPort]:
    return [{"protocol": "TCP", "port": port} for port in ports]


OPS_POLICY: Final = "ops"
TRAINER_POLICY: Final = "trainer"
ENVIRONMENT_POLICY: Final = "environment"

DATA_PORTS: Final = {"api": API_PORT, "inference": INFERENCE_PORT}

RESOLVERS: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7")
"""Where DNS resolvers run besides pods: on nodes, and on the node-local address. Not on the internet: a port 53 there
may be anything.
"""


def ops_policy_name(run: TrainingRun) -> str:
    return f"{service_name(run)}-{OPS_POLICY}"


def ops_policy(run: TrainingRun, peers: Sequence[k8s.PolicyPeer]) -> k8s.NetworkPolicyObject:
    """Of every run, for all its pods but sandboxes, and for the pod that reads what it kept: `peers` reach the ops
    ports, and nobody anything, unless another policy says more. It is not frozen with the run: who may get in is up to
    the platform, whatever the run's ConfigMap holds.
    """
    pods: k8s.PodSelector = {
        "matchLabels": {names.RUN_UID_LABEL: run.metadata.uid},
        "matchExpressions": [{"key": names.COMPONENT_LABEL, "operator": "NotIn", "values": [names.SANDBOX_COMPONENT]}],
    }
    ingress: Rules = [{"from": list(peers), "ports": tcp_ports(*OPS_PORTS.values())}] if peers else []
    return network_policy(run, OPS_POLICY, pods, ingress)


def operator_peer(namespace: str) -> k8s.PolicyPeer:
    """The operator's pods in its namespace, however it was installed."""
    return {
        "namespaceSelector": {"matchLabels": {names.NAMESPACE_NAME_LABEL: namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": names.MANAGER}},
    }


def service_host(run: TrainingRun) -> str:
    """The name of the run's pod for its environments."""
    return f"{service_name(run)}.{run.metadata.namespace}.svc"


def network_names(run: TrainingRun) -> frozenset[tuple[str, str]]:
    """Kind and name of the objects that `network_children` returns."""
    name = service_name(run)
    policies = (f"{name}-{component}" for component in (TRAINER_POLICY, ENVIRONMENT_POLICY))
    return frozenset({("Service", name), *(("NetworkPolicy", policy) for policy in policies)})


def network_children(run: TrainingRun, inputs: RunInputs) -> list[k8s.NetworkPolicyObject | k8s.ServiceObject]:
    """The NetworkPolicies, then the Service: the policies exist before there is anything to connect to."""
    return [_trainer_policy(run), _environment_policy(run, inputs), _service(run)]


def resolves_names(run: TrainingRun, inputs: RunInputs) -> bool:
    """Whether environments in their own pods may ask DNS, through which a name can carry data out.

    An OpenEnv image is nobody's code here, and needs no name but that of the run's pod, unless it is let out.
    """
    openenv = inputs.environment.openenv
    let_out = bool(inputs.runtime.spec.environment_egress) or inputs.teacher(run) is not None
    return openenv is None or not openenv.runs_beside or let_out


def _service(run: TrainingRun) -> k8s.ServiceObject:
    """Headless: one pod is behind it. Its address is published at once, or nothing could wait for it to be ready."""
    spec: k8s.ServiceSpec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": pods_of_component(run, names.TRAINING_COMPONENT)["matchLabels"],
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in DATA_PORTS.items()],
    }
    return network_service(run, service_name(run), spec)


def _trainer_policy(run: TrainingRun) -> k8s.NetworkPolicyObject:
    """For the run's pod: its data ports are for its environments."""
    environments: k8s.PolicyPeer = {"podSelector": pods_of_component(run, names.ENVIRONMENT_COMPONENT)}
    ingress: Rules = [{"from": [environments], "ports": tcp_ports(*DATA_PORTS.values())}]
    return network_policy(run, TRAINER_POLICY, pods_of_component(run, names.TRAINING_COMPONENT), ingress)


def _environment_policy(run: TrainingRun, inputs: RunInputs) -> k8s.NetworkPolicyObject:
    """For the environments' pods: the run's pod, its sandboxes, DNS, an OpenEnv server elsewhere, the teacher, and what
    the runtime allows.
    """
    boxes: list[k8s.PolicyPeer] = [{"podSelector": pods_of_component(run, names.SANDBOX_COMPONENT)}]
    sandboxes: k8s.PolicyRule = {"to": boxes, "ports": tcp_ports(SANDBOX_PORT)}
    egress: Rules = [
        {
            "to": [{"podSelector": pods_of_component(run, names.TRAINING_COMPONENT)}],
            "ports": tcp_ports(*DATA_PORTS.values()),
        },
        *([sandboxes] if run.spec.sandbox else []),
        *([_dns()] if resolves_names(run, inputs) else []),
        *_servers(run, inputs),
        *map(_egress, inputs.runtime.spec.environment_egress),
    ]
    return network_policy(run, ENVIRONMENT_POLICY, pods_of_component(run, names.ENVIRONMENT_COMPONENT), [], egress)


def trial_policy(run: TrainingRun, inputs: RunInputs, job: str, provider_url: str) -> k8s.NetworkPolicyObject:
    """For the pod of a Job in which a stranger's code is tried: nobody gets in, and it reaches DNS, the provider, and
    what the runtime allows.
    """
    egress = [_dns(), server_egress(provider_url), *map(_egress, inputs.runtime.spec.environment_egress)]
    metadata: k8s.ManifestMetadata = {"name": job, "namespace": run.metadata.namespace}
    return _policy(metadata, {"matchLabels": {names.TRIAL_LABEL: run.metadata.name}}, [], egress)


def _dns() -> k8s.PolicyRule:
    ports: list[k8s.NetworkPort] = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    nodes: list[k8s.PolicyPeer] = [{"ipBlock": {"cidr": cidr}} for cidr in RESOLVERS]
    return {"to": [{"namespaceSelector": {}}, *nodes], "ports": ports}


def _servers(run: TrainingRun, inputs: RunInputs) -> list[k8s.PolicyRule]:
    """An OpenEnv server elsewhere, and the teacher."""
    openenv, teacher = inputs.environment.openenv, inputs.teacher(run)
    urls = (openenv.url if openenv else None, teacher.url if teacher else None)
    return [server_egress(url) for url in urls if url]


def server_egress(url: str) -> k8s.PolicyRule:
    """The port is the URL's, or its scheme's."""
    split = urlsplit(url)
    return {"to": _server_peers(split.hostname or ""), "ports": tcp_ports(split.port or _DEFAULT_PORTS[split.scheme])}


def _egress(rule: EgressRule) -> k8s.PolicyRule:
    to = [_block(rule.cidr)]
    return {"to": to, "ports": tcp_ports(*rule.ports)} if rule.ports else {"to": to}


def _block(cidr: str) -> k8s.PolicyPeer:
    metadata = _metadata_within(cidr)
    return {"ipBlock": {"cidr": cidr, "except": metadata} if metadata else {"cidr": cidr}}


def _metadata_within(cidr: str) -> list[str]:
    """What a wide range would let in by accident; a range that is no wider is meant as it is.

    Anything that is not a range is left for the API server to reject.
    """
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return []
    served = [each for each in map(ipaddress.ip_network, METADATA) if each.version == network.version]
    return [str(each) for each in served if each.overlaps(network) and each.prefixlen > network.prefixlen]


ANYWHERE: Final = ("0.0.0.0/0", "::/0")

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SERVICE: Final = re.compile(r"[^.]+\.(?P<namespace>[^.]+)\.svc(\..+)?")


def _server_peers(host: str) -> list[k8s.PolicyPeer]:
    """Whom a policy must let the environment reach for that host.

    A policy sees pods and addresses. An address is itself. The name of a Service stands for the pods of its namespace:
    which of them are behind it, the Service may change. Any other name may stand for anything.
    """
    try:
        return [_block(str(ipaddress.ip_network(host)))]
    except ValueError:
        pass
    if "." not in host:
        return [{"podSelector": {}}]
    if service := _SERVICE.fullmatch(host):
        return [{"namespaceSelector": {"matchLabels": {names.NAMESPACE_NAME_LABEL: service["namespace"]}}}]
    return [{"namespaceSelector": {}}, *map(_block, ANYWHERE)]


SANDBOX_POLICY: Final = "sandbox"


def sandbox_host(run: TrainingRun) -> str:
    """The name of the run's sandboxes for its environments: each connection leads to any of them."""
    return f"{_sandboxes_name(run)}.{run.metadata.namespace}.svc"


def _sandboxes_name(run: TrainingRun) -> str:
    """The Service's name: with a run's name of 52 characters it has 62, and 63 are allowed."""
    return f"{service_name(run)}-box"


def sandbox_network_names(run: TrainingRun) -> frozenset[tuple[str, str]]:
    """Kind and name of the objects that `sandbox_network_children` returns."""
    policy = f"{service_name(run)}-{SANDBOX_POLICY}"
    return frozenset({("Service", _sandboxes_name(run)), ("NetworkPolicy", policy)})


def sandbox_network_children(run: TrainingRun) -> list[k8s.NetworkPolicyObject | k8s.ServiceObject]:
    """The NetworkPolicy of the sandboxes, then their Service."""
    return [_sandbox_policy(run), network_service(run, _sandboxes_name(run), _sandbox_service(run))]


def _sandbox_policy(run: TrainingRun) -> k8s.NetworkPolicyObject:
    """Only the pods that hold an environment get in, and nothing gets out, not even a look-up of a name."""
    holders = [names.ENVIRONMENT_COMPONENT, *([] if runs_apart(run.spec.environment) else [names.TRAINING_COMPONENT])]
    peers: list[k8s.PolicyPeer] = [{"podSelector": pods_of_component(run, component)} for component in holders]
    ingress: Rules = [{"from": peers, "ports": tcp_ports(SANDBOX_PORT)}]
    return network_policy(run, SANDBOX_POLICY, pods_of_component(run, names.SANDBOX_COMPONENT), ingress, [])


def _sandbox_service(run: TrainingRun) -> k8s.ServiceSpec:
    """Not headless: an environment connects until it has found a free one. The addresses behind a name would come by
    way of DNS, whose caches know a new sandbox up to half a minute late.
    """
    return {
        "selector": pods_of_component(run, names.SANDBOX_COMPONENT)["matchLabels"],
        "ports": [{"name": "sandbox", "port": SANDBOX_PORT, "protocol": "TCP"}],
    }
