"""Who may talk to whom: the walls around untrusted environments."""

from typing import Any

import pytest
from tests.unit.rl_operator.render.test_rollout_sink import CLAIM
from tests.unit.rl_operator.samples import (
    UID,
    inputs_of,
    make_run,
    make_runtime,
    openenv_environment,
    own_environment,
    own_inputs,
)

from rl_operator.render.environment_pod import environment_pod, environment_template
from rl_operator.render.network import DATA_PORTS, network_children, network_names, operator_peer, ops_policy
from rl_operator.render.pod import pod_of_attempt, pod_template
from rl_operator.render.rollout_reader import rollout_reader_job

OWN_RUN = make_run(environment="own/digits")
TRAINER, ENVIRONMENT, SERVICE = network_children(OWN_RUN, own_inputs(OWN_RUN))


def selected(selector: dict[str, str], pod: dict[str, Any]) -> bool:
    return selector.items() <= pod["metadata"]["labels"].items()


def pods_of(uid: str = UID, name: str = "sorting") -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's own pod and an environment's."""
    run = OWN_RUN.with_changes(metadata=OWN_RUN.metadata.with_changes(uid=uid, name=name))
    inputs = own_inputs(run)
    template = environment_template(run, inputs, None)
    return pod_of_attempt(pod_template(run, inputs), 1, exposed=True), environment_pod(template, 1, 0, 0)


def ports(rule: dict[str, Any]) -> list[tuple[str, int]]:
    return [(port["protocol"], port["port"]) for port in rule["ports"]]


def test_each_selects_only_its_own_pods() -> None:
    """Neither those of other runs nor those of an earlier run of the same name."""
    trainer, environment = pods_of()
    strangers = [*pods_of(uid="another"), *pods_of(name="other")]
    for child, wanted in ((TRAINER, trainer), (ENVIRONMENT, environment)):
        labels = child["spec"]["podSelector"]["matchLabels"]
        assert [pod for pod in (trainer, environment, *strangers) if selected(labels, pod)] == [wanted]
    assert [pod for pod in (trainer, environment, *strangers) if selected(SERVICE["spec"]["selector"], pod)] == [
        trainer
    ]


def test_the_data_ports_are_for_the_runs_environments() -> None:
    _, environment = pods_of()
    [data] = TRAINER["spec"]["ingress"]
    [peer] = data["from"]
    assert selected(peer["podSelector"]["matchLabels"], environment)
    assert peer.keys() == {"podSelector"}, "without a namespace selector: this namespace"
    assert ports(data) == [("TCP", port) for port in DATA_PORTS.values()]


def test_an_environment_reaches_its_run_and_dns() -> None:
    trainer, _ = pods_of()
    spec = ENVIRONMENT["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [], "its ops port is opened by the policy of all ops ports"
    data, dns = spec["egress"]
    assert selected(data["to"][0]["podSelector"]["matchLabels"], trainer)
    assert ports(data) == [("TCP", port) for port in DATA_PORTS.values()]
    assert ports(dns) == [("UDP", 53), ("TCP", 53)]
    assert dns["to"][0] == {"namespaceSelector": {}}
    assert all(not peer["ipBlock"]["cidr"].endswith("/0") for peer in dns["to"][1:]), (
        "port 53 of the internet is a door"
    )


PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def test_ops_ports_are_for_the_operator_and_whom_the_platform_names() -> None:
    """Of a run with its environment inside of its pod, too, and of the pod that reads what it kept."""
    plain = make_run()
    policy = ops_policy(plain, [operator_peer("rl-operator"), PROMETHEUS])
    [rule] = policy["spec"]["ingress"]
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "rl-operator"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "rl-operator"}},
    }
    assert rule["from"] == [operator, PROMETHEUS]
    assert sorted(ports(rule)) == [("TCP", 8002), ("TCP", 8003), ("TCP", 8004)]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    labels = policy["spec"]["podSelector"]["matchLabels"]
    trainer, environment = pods_of()
    reader = rollout_reader_job(plain, pod_template(plain, inputs_of(plain, CLAIM)), "abc", "t0ken")["spec"]["template"]
    sandbox = {"key": "app.kubernetes.io/component", "operator": "NotIn", "values": ["sandbox"]}
    assert policy["spec"]["podSelector"]["matchExpressions"] == [sandbox], "a sandbox has no such port"
    assert [selected(labels, pod) for pod in (trainer, environment, reader)] == [True] * 3
    assert not any(selected(labels, pod) for pod in (*pods_of(uid="another"), *pods_of(uid="u-3", name="other")))


def test_without_a_peer_nobody_reaches_an_ops_port() -> None:
    """A rule without `from` would let everybody in."""
    assert ops_policy(make_run(), [])["spec"]["ingress"] == []


METADATA_V4 = ["169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"]
METADATA_V6 = ["fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128"]
EGRESS: dict[str, tuple[str, list[str]]] = {
    "everything": ("0.0.0.0/0", METADATA_V4),
    "everything, written otherwise": ("10.9.8.7/0", METADATA_V4),
    "everything of IPv6": ("::/0", METADATA_V6),
    "a part that holds a metadata service": ("fd00::/8", ["fd00:ec2::/32", "fd20:ce::254/128"]),
    "carrier-grade NAT's": ("100.64.0.0/10", ["100.100.100.200/32"]),
    "a part that does not": ("203.0.113.0/24", []),
    "the metadata service by name": ("169.254.169.254/32", []),
    "of another cloud, by name": ("100.100.100.200/32", []),
    "the link-local range by name": ("169.254.0.0/16", []),
    "nonsense, for the API server to refuse": ("anywhere", []),
}


@pytest.mark.parametrize(("cidr", "excepted"), EGRESS.values(), ids=EGRESS)
def test_a_wide_range_excludes_the_nodes_credentials(cidr: str, excepted: list[str]) -> None:
    runtime = make_runtime(environmentEgress=[{"cidr": cidr, "ports": [443]}])
    rule = network_children(OWN_RUN, own_inputs(OWN_RUN, runtime))[1]["spec"]["egress"][2]
    [peer] = rule["to"]
    assert peer["ipBlock"]["cidr"] == cidr
    assert peer["ipBlock"].get("except", []) == excepted
    assert ports(rule) == [("TCP", 443)]


def test_names_fit_and_are_known() -> None:
    run = OWN_RUN.with_changes(metadata=OWN_RUN.metadata.with_changes(name="a" * 52))
    children = network_children(run, own_inputs(run))
    assert {(child["kind"], child["metadata"]["name"]) for child in children} == network_names(run)
    assert len(children[2]["metadata"]["name"]) <= 63, "a Service's name is a DNS label"


RUN = make_run(environment="own/digits")
DNS = 53


def egress(runtime: Any = None, **openenv: Any) -> list[dict[str, Any]]:
    inputs = own_inputs(RUN, runtime or make_runtime(), openenv_environment(**openenv))
    rules: list[dict[str, Any]] = network_children(RUN, inputs)[1]["spec"]["egress"]
    return rules


def allowed_ports(rule: dict[str, Any]) -> set[int]:
    return {port["port"] for port in rule["ports"]}


def test_an_image_reaches_the_run_and_no_resolver() -> None:
    assert [allowed_ports(rule) for rule in egress()] == [{8000, 8001}]


def test_where_the_runtime_lets_environments_out_names_are_resolved() -> None:
    runtime = make_runtime(environmentEgress=[{"cidr": "203.0.113.0/24", "ports": [443]}])
    assert [allowed_ports(rule) for rule in egress(runtime)] == [{8000, 8001}, {DNS}, {443}]


ANYWHERE = [
    {"namespaceSelector": {}},
    {"ipBlock": {"cidr": "0.0.0.0/0", "except": METADATA_V4}},
    {"ipBlock": {"cidr": "::/0", "except": METADATA_V6}},
]
GAMES = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "games"}}}]
URLS: dict[str, tuple[str, list[dict[str, Any]], int]] = {
    "an address": ("http://10.0.0.7:9000", [{"ipBlock": {"cidr": "10.0.0.7/32"}}], 9000),
    "an IPv6 address": ("http://[fd12::7]:9000", [{"ipBlock": {"cidr": "fd12::7/128"}}], 9000),
    "a Service of the namespace": ("http://echo", [{"podSelector": {}}], 80),
    "a Service of another": ("http://echo.games.svc:9000", GAMES, 9000),
    "its full name": ("http://echo.games.svc.cluster.local:9000", GAMES, 9000),
    "another name": ("https://echo.example.com", ANYWHERE, 443),
}


@pytest.mark.parametrize(("url", "peers", "port"), URLS.values(), ids=URLS)
def test_a_url_opens_as_little_as_a_policy_can_say(url: str, peers: list[dict[str, Any]], port: int) -> None:
    data, dns, server = egress(url=url)
    assert (allowed_ports(data), allowed_ports(dns), allowed_ports(server)) == ({8000, 8001}, {DNS}, {port})
    assert server["to"] == peers


@pytest.mark.parametrize("own", [own_environment(), openenv_environment()], ids=["code", "OpenEnv"])
def test_a_run_that_learns_from_a_teacher_reaches_it(own) -> None:
    runtime = make_runtime(teacher={"url": "http://teacher.models.svc:8100"})
    run = make_run(environment="own/digits", config={"teacher_top_k": 4})
    inputs = own_inputs(run, runtime, own)
    _, dns, teacher = network_children(run, inputs)[1]["spec"]["egress"]
    models = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "models"}}}
    assert (allowed_ports(dns), teacher) == ({DNS}, {"to": [models], "ports": [{"protocol": "TCP", "port": 8100}]})
    assert "hostAliases" not in environment_template(run, inputs, None)["spec"], "its name is resolved"
    rules = network_children(RUN, own_inputs(RUN, runtime, own))[1]["spec"]["egress"]
    assert teacher not in rules, "a run that learns from none is not let out to it"
